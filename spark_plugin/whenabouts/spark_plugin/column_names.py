"""Names of columns as Spark's parser reads them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name of one column, whatever is in it: dots, blanks, backticks.

    >>> print(quoted("a`.b"))
    `a``.b`
    """
    return f"`{name.replace('`', '``')}`"
