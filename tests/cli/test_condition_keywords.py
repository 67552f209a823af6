"""Condition keywords mean the same on the command line, in a plan file and in SQL, or fail with the same error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whenabouts.core.errors import WhenaboutsError
from whenabouts.core.times.conditions import Condition, between, deadline, delay, overlaps, possibly, within
from whenabouts.planner.plan_joins import timing_join_of
from whenabouts.planner.streams import Stream

from .conftest import Cli

MEANINGS: list[tuple[dict[str, Any], Condition | str]] = [
    ({"within": "2 s", "confidence": 0.6}, within("2 s", confidence=0.6)),
    ({"within": "PT1.5S", "confidence": 1}, within("1.5 s", confidence=1)),
    ({"deadline": "5s", "confidence": 0.5}, deadline("5s", confidence=0.5)),
    ({"deadline": "5s", "since": "-1s", "confidence": 0.5}, deadline("5s", since="-1s", confidence=0.5)),
    ({"delay": "1s", "until": "1m", "confidence": 0.9}, delay("1s", until="1m", confidence=0.9)),
    ({"between": "-1s,5s", "confidence": 0.5}, between("-1s", "5s", confidence=0.5)),
    ({"between": " -1s , 5s ", "confidence": 0.5}, between("-1s", "5s", confidence=0.5)),
    ({"overlaps": True}, overlaps()),
    ({"within": "2 s", "possibly": True}, possibly(within("2 s"))),
    ({"between": "-1s,5s", "possibly": True}, possibly(between("-1s", "5s"))),
    ({"overlaps": True, "confidence": 0.5}, "WA-2006: confidence is given with overlaps"),
    ({"within": "1s", "possibly": True, "confidence": 0.5}, "WA-2006: confidence is given with possibly"),
    ({"within": "1s", "overlaps": True}, "WA-2006: within and overlaps are given together"),
    ({"possibly": True}, "WA-2006: no condition is given"),
    ({"confidence": 0.5}, "WA-2006: no condition is given"),
    ({"since": "1s", "confidence": 0.5}, "WA-2006: no condition is given"),
    ({"within": "1s", "delay": "1s", "confidence": 0.5}, "WA-2006: within and delay are given together"),
    ({"within": "1s", "since": "1s", "confidence": 0.5}, "WA-2006: since is given without deadline"),
    ({"deadline": "1s", "until": "1s", "confidence": 0.5}, "WA-2006: until is given without delay"),
    ({"between": "1s", "confidence": 0.5}, "WA-2006: between is '1s'"),
    ({"between": "1s,2s,3s", "confidence": 0.5}, "WA-2006: between is '1s,2s,3s'"),
    ({"between": "5s,1s", "confidence": 0.5}, "WA-2005: "),
    ({"between": ",1s", "confidence": 0.5}, "WA-2002: "),
    ({"within": "soon", "confidence": 0.5}, "WA-2002: "),
    ({"within": "-1s", "confidence": 0.5}, "WA-2003: "),
    ({"within": "1s"}, "WA-2001: no confidence is given"),
    ({"within": "1s", "confidence": 0}, "WA-2001: confidence is "),
    ({"within": "1s", "confidence": "nan"}, "WA-2001: confidence is "),
    ({"within": "1s", "confidence": "high"}, "WA-2001: confidence is 'high'"),
]


@pytest.mark.parametrize(("keywords", "meaning"), MEANINGS)
def test_keywords_mean_the_same_everywhere(
    cli: Cli, tmp_path: Path, keywords: dict[str, Any], meaning: Condition | str
) -> None:
    (tmp_path / "in.csv").write_text("t\n2024-01-01T00:00:00Z\n")
    found = [_of_command_line(cli, keywords), _of_plan(keywords), _of_sql(keywords)]
    if isinstance(meaning, Condition):
        assert found == [meaning.described, str(meaning), str(meaning)]
    else:
        assert all(each.startswith(meaning) for each in found), found


def _of_command_line(cli: Cli, keywords: dict[str, Any]) -> str:
    options = [
        word for name, value in keywords.items() for word in (f"--{name}", *([] if value is True else [str(value)]))
    ]
    done = cli("join", "in.csv", "in.csv", "--left-time", "t", "--right-time", "t", *options, "--explain")
    lines = done.stderr.splitlines()
    if done.exit_code == 2:
        return lines[-1].removeprefix("error: ")
    assert done.exit_code == 0, done.stderr
    return next(line for line in lines if line.startswith("condition: ")).removeprefix("condition: ")


def _of_plan(keywords: dict[str, Any]) -> str:
    from whenabouts.core import Point

    streams = {name: Stream(time=Point("t")) for name in ("a", "b")}
    try:
        return str(timing_join_of({"join": ["a", "b"], **keywords}, "plan", streams).condition)
    except WhenaboutsError as error:
        return str(error)


def _of_sql(keywords: dict[str, Any]) -> str:
    from whenabouts.spark_plugin.sql_functions import _query

    try:
        return str(_query({"time": "t", **keywords}).condition)
    except WhenaboutsError as error:
        return str(error)
