"""Deprecated path of `whenabouts.planner.state_forecast`."""

from whenabouts.core.deprecated_paths import moved

__getattr__ = moved(__name__, "whenabouts.planner.state_forecast")
