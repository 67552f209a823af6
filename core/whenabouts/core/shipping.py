"""Deprecated path of `whenabouts.core.hosting.worker_archive`."""

from whenabouts.core.deprecation import moved

__getattr__ = moved(__name__, "whenabouts.core.hosting.worker_archive")
