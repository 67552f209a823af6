"""`--explain` shows a query in the user's terms, without what is of the program only."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]

TIMES = "--left-time t --right-time t"
JOINED = "SELECT A.v, B.w + 1 AS z FROM x A, y B WHERE A.k = B.k AND WINDOW(A, B) = '1 s' AND A.v < B.w AND A.v > 3"
LONGEST = "SELECT k, MAX(DURATION(VALID(s))) AS d FROM x [RANGE 1 HOUR SLIDE 1 HOUR] s COALESCE ON v > 1 GROUP BY k"
INTERNALS = ("recorded", "changeable", "keeps_aggregates", "UNSAID", "Expression(", "frozenset", "operation=", "()")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,t,v\n1,1000000,5\n1,3000000,6\n")
    (tmp_path / "b.csv").write_text("k,t,w\n1,1000000,7\n1,2000000,8\n")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            f"join a.csv b.csv --on k {TIMES} --within 1s --confidence 0.9 --where 'left.v < right.w'",
            ["on: k", "condition: -1 s <= right - left <= 1 s with confidence 0.9", "where: lt(left.v, right.w)"],
        ),
        (
            f"join a.csv b.csv {TIMES} --within 1s --aggregate none=p_none",
            ["condition: -1 s <= right - left <= 1 s"],
        ),
        (f"asof-join a.csv b.csv --on k {TIMES}", ["direction: backward"]),
        ("coalesce a.csv --time t --group k --values v", ["group: k", "values: v"]),
        ("window-join x=a.csv y=b.csv --time t --on k --window x,y=1s", ["windows: -1 s <= y - x <= 1 s"]),
        (
            f'query "{JOINED}" --input x=a.csv --input y=b.csv',
            ["predicates: ((A, B), lt(A.v, B.w))", "rows with: (A, gt(v, 3))", "columns: v, (z, add(w, 1))"],
        ),
        (f'query "{LONGEST}" --input x=a.csv', ["aggregates: d=max", "columns: window_end, k, d"]),
    ],
)
def test_a_query_is_shown_in_the_terms_of_its_user(cli: Cli, words: str, shown: list[str]) -> None:
    done = cli(*shlex.split(words), "--explain")
    assert done.exit_code == 0, done.stderr
    lines = done.stderr.splitlines()
    assert not [line for line in lines for internal in INTERNALS if internal in line]
    assert [line for line in shown if line not in lines] == []


def test_each_algorithm_of_a_window_join_is_told_once(cli: Cli) -> None:
    done = cli("window-join x=a.csv y=b.csv --time t --on k --window x,y=1s --explain")
    told = [line.partition(":")[0] for line in done.stderr.splitlines() if line.endswith(" ns a second and key")]
    assert "backward none, y taken last" in told
    assert len(told) == len(set(told)) == 9
