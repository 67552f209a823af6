"""Hints name the options of the command, or the words of a text, not arguments of Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]

JOIN = "join a.csv b.csv --left-time t --right-time"
TEXT = "SELECT A.v FROM x A, y B WHERE WINDOW(A, B)"
STREAMS = "--input x=a.csv --input y=b.csv"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (f"{JOIN} t --deadline 5s --confidence 0.5 --stream", "add --since D, or use --between LO,HI"),
        (f"{JOIN} t --delay 5s --confidence 0.5 --stream", "add --until D, or use --between LO,HI"),
        (f"{JOIN} t,u --within 1s --aggregate n=count", "give --confidence P, or ask chance functions only"),
        (f"{JOIN} t --within 1s --confidence 1 --ties nearest", "say which side chooses: --best left"),
        (f"asof-{JOIN} t,u", "give --confidence P, how probable it has to be"),
        ("window-join x=a.csv y=b.csv --time t --time y=t,u --window x,y=1s", "write --window A,B=D@P; @1 asks"),
        ("coalesce a.csv --time t --values v --equivalence bogus", "choose one of equal, absolute_tolerance:E"),
        ("coalesce a.csv --time t --group k --values v --rows 2 --stream", "--per-group distributes it"),
        (f"query \"{TEXT} = '1 s'\" {STREAMS} --time x=t --time y=t,u", "write WITH THRESHOLD P after the window"),
        (
            'query "SELECT k, v, VALID(s) FROM x [ROWS 2] s COALESCE ON v GROUP BY k" --input x=a.csv --streaming',
            "[PARTITION BY GROUP ROWS N] distributes it",
        ),
        (
            f'query "SELECT A.v FROM x A ASOF JOIN y B ON A.k = B.k AND TIME(A) >= TIME(B)" {STREAMS} --time y=t,u',
            "write WITH THRESHOLD P, how probable",
        ),
    ],
)
def test_hints_are_in_the_words_of_the_command(cli: Cli, tmp_path: Path, words: str, hint: str) -> None:
    (tmp_path / "a.csv").write_text("k,t,v\n1,1000000,5\n")
    (tmp_path / "b.csv").write_text("k,t,u,w\n1,1000000,2000000,7\n")
    told = cli(*shlex.split(words)).stderr
    assert hint in told
    assert not re.search(r"[a-z_]=(\.\.\.|True|False|\W)|a function|\(\.\.\.\)|Point", told.partition("(hint: ")[2])
