"""The command line, `whenabouts COMMAND`. Starting it loads click only."""

from whenabouts.cli.app import main

__all__ = ["main"]
