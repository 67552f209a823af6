"""Deprecated path of `whenabouts.core.wrappers.deduplication`."""

from whenabouts.core.deprecation import moved

__getattr__ = moved(__name__, "whenabouts.core.wrappers.deduplication")
