"""The command line: `whenabouts join`, `doctor`, `demo`. Start-up loads click only."""

from whenabouts.cli.app import main

__all__ = ["main"]
