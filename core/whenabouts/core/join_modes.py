"""Deprecated path of `whenabouts.core.timing_join.modes`."""

from whenabouts.core.deprecation import moved

__getattr__ = moved(__name__, "whenabouts.core.timing_join.modes")
