"""Deprecated path of `whenabouts.core.expressions.sql`."""

from whenabouts.core.deprecation import moved

__getattr__ = moved(__name__, "whenabouts.core.expressions.sql")
