"""Deprecated path of `whenabouts.core.temporal_queries.periods`."""

from whenabouts.core.deprecation import moved

__getattr__ = moved(__name__, "whenabouts.core.temporal_queries.periods")
