"""Deprecated path of `whenabouts.core.wrappers.state_limit`."""

from whenabouts.core.deprecation import moved

__getattr__ = moved(__name__, "whenabouts.core.wrappers.state_limit")
