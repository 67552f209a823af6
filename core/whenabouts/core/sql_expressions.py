"""Deprecated path of `whenabouts.core.expressions.sql`."""

from whenabouts.core.deprecated_paths import moved

__getattr__ = moved(__name__, "whenabouts.core.expressions.sql")
