"""Deprecated path of `whenabouts.planner.state_forecast`."""

from whenabouts.core.deprecation import moved

__getattr__ = moved(__name__, "whenabouts.planner.state_forecast")
