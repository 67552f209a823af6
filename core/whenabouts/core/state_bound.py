"""Deprecated path of `whenabouts.core.wrappers.state_limit`."""

from whenabouts.core.deprecated_paths import moved

__getattr__ = moved(__name__, "whenabouts.core.wrappers.state_limit")
