"""Messages in the words of the command line: the core writes them for callers of Python, with paths of files."""

from __future__ import annotations

import click

_INPUTS = ("give a schema for ", "write --input NAME=PATH for ")

_OPTIONS = (
    _INPUTS,
    ("give a condition with confidence=...", "give --confidence P"),
    ("give confidence=...", "give --confidence P"),
    ("give confidence, in (0, 1], or possibly", "give --confidence P, in (0, 1], or --possibly"),
    ("only Point needs none", "exact times need none"),
    ("or possibly(...) for any above 0", "or --possibly for any above 0"),
    ("add since= to deadline(...), or use between(lo, hi)", "add --since D, or use --between LO,HI"),
    ("add until= to delay(...), or use between(lo, hi)", "add --until D, or use --between LO,HI"),
    ("give within(..., confidence=...); confidence=1 asks", "write --window A,B=D@P; @1 asks"),
    ("give tolerance=...", "give --tolerance D"),
    ("best='left'", "--best left"),
    ("(best=, how='left_semi')", "(--best, --how left_semi)"),
    ("how='inner' or 'left_outer'", "--how inner or left_outer"),
    ("probability=False", "--no-probability"),
    ("per_group=True", "--per-group"),
    ('outliers="drop"', "--outliers drop"),
    ("unchecked=True", "--unchecked"),
    (", or give a function that takes two tables (the previous rows and the current rows) and returns a boolean array",
     ""),
    ("pip install 'whenabouts[sql]', or give a function", "pip install 'whenabouts[sql]'"),
)  # fmt: skip
"""Python, and the options that say the same."""

_TEXTS = (
    _INPUTS,
    ("give confidence=...", "write WITH THRESHOLD P"),
    ("only Point needs none", "exact times need none"),
    ("add since= to deadline(...), or use between(lo, hi)", "write WINDOW(A, B) BETWEEN LO AND HI"),
    ("add until= to delay(...), or use between(lo, hi)", "write WINDOW(A, B) BETWEEN LO AND HI"),
    ("give within(..., confidence=...); confidence=1 asks", "write WITH THRESHOLD P after the window; 1 asks"),
    ("give tolerance=...", "write TOLERANCE D"),
    ("per_group=True distributes", "[PARTITION BY GROUP ROWS N] distributes"),
    (", or leave it out of the output: probability=False", ""),
)
"""Python, and how a query as text says it."""

_TABLES: dict[str | None, tuple[tuple[str, str], ...]] = {"query": _TEXTS, "plan": (_INPUTS,)}
"""By command, where it is not `_OPTIONS`. What `plan` reports on is in a file, in words like Python's."""

STDIN_FILE = "whenabouts.stdin_file"
"""In a context's `meta`: the path of the temporary file that holds what came from stdin."""


def spelled(message: str) -> str:
    """The message of an error or a warning, as the running command would have it written.

    >>> spelled("add since= to deadline(...), or use between(lo, hi)")
    'add --since D, or use --between LO,HI'
    """
    context = click.get_current_context(silent=True)
    command = None if context is None else context.invoked_subcommand or context.info_name
    file = None if context is None else context.meta.get(STDIN_FILE)
    if file is not None:
        message = message.replace(file, "stdin")
    for python, words in _TABLES.get(command, _OPTIONS):
        message = message.replace(python, words)
    return message
