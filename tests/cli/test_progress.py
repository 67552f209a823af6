"""`--progress` of streams: rate, rows, output, rejects, state and watermark, in the same words on every engine."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from rich.console import Console
from rich.progress import Progress, TextColumn

from whenabouts.cli import progress as module
from whenabouts.core import Interval, Lateness, metrics, within
from whenabouts.core.hosting.stream_progress import StreamProgress
from whenabouts.core.local import run_stream
from whenabouts.core.timing_join.query import TimingJoin

Cli = Callable[..., Result]

SECOND = 1_000_000
FILES, ROWS = 4, 50
LINE = re.compile(
    r"running on \w+: (?P<rate>[\d,]+) rows/s, (?P<rows>[\d,]+) rows, (?P<out>[\d,]+) out, "
    r"(?P<rejected>[\d,]+) rejected, state (?P<state>[\d,]+) rows"
    r"(, watermark (?P<watermark>2024-05-01 \d\d:\d\d:\d\d))?"
)


def files() -> list[pa.Table]:
    """A row a second from 2024-05-01 10:00 on, known to two seconds; the first row of each file has no time."""
    start = 1_714_557_600 * SECOND
    tables = []
    for number in range(FILES):
        at = [start + (number * ROWS + row) * SECOND for row in range(ROWS)]
        tables.append(pa.table({"a": pa.array([None, *at[1:]], pa.int64()), "b": [us + 2 * SECOND for us in at]}))
    return tables


def test_a_local_stream_says_after_each_step_how_far_it_has_come() -> None:
    spec = Interval("a", "b", max_uncertainty="2 s")
    query = TimingJoin(
        left_time=spec, right_time=spec, condition=within("1 s", confidence=0.5), lateness=Lateness("5 s", "5 s")
    )
    seen: list[StreamProgress] = []
    outcome = run_stream(query, [files(), files()], watch=seen.append)
    assert [step.rows_in for step in seen] == [2 * ROWS * (number + 1) for number in range(FILES)]
    assert [step.rejected for step in seen] == [2 * (number + 1) for number in range(FILES)]
    assert [step.rows_out for step in seen] == sorted(step.rows_out for step in seen)
    assert 0 < seen[-1].rows_out <= outcome.output.num_rows
    assert seen[-1].state_rows == outcome.metrics[metrics.STORED] - outcome.metrics[metrics.EVICTED] > 0
    until = [table["b"][-1].as_py() - 5 * SECOND for table in files()[:-1]]
    assert [step.watermark_us for step in seen[:-1]] == until
    assert "watermark 2024-05-01 10:0" in str(seen[0])


ENGINES = (
    "local",
    pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.full]),  # tests/spark has a test of what it hears
    *([pytest.param("flink", marks=pytest.mark.slow)] if find_spec("pyflink") else []),
)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.filterwarnings("ignore")  # as in test_engines
def test_lines_of_a_stream(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        for number, table in enumerate(files()):
            pq.write_table(table, tmp_path / side / f"{number}.parquet")
    done = cli(
        "join left right --left-time a,b --right-time a,b --max-uncertainty 2s --within 1s --confidence 0.5 --stream "
        f"--lateness 5s --progress --time-unit us -o out.parquet --engine {engine}"
    )
    assert done.exit_code == 0, done.output
    lines = [found for line in done.stderr.splitlines() if (found := LINE.fullmatch(line))]
    assert lines, done.stderr
    rows, out, rejected, state = (
        [int(line[name].replace(",", "")) for line in lines] for name in ("rows", "out", "rejected", "state")
    )
    for counted in (rows, out, rejected):
        assert counted == sorted(counted)
    assert 2 * ROWS <= rows[-1] <= 2 * ROWS * FILES  # of an engine in other processes the last step may be missed
    assert 0 < out[-1] <= pq.read_metadata(tmp_path / "out.parquet").num_rows
    assert 0 < rejected[-1] <= 2 * FILES
    assert max(state) > 0
    assert any(line["watermark"] for line in lines)


def test_the_bar_of_a_terminal_shows_the_same() -> None:
    written = io.StringIO()
    columns = TextColumn("{task.description}|{task.completed}|{task.total}|{task.fields[stream]}")
    with Progress(columns, console=Console(file=written, width=200, force_terminal=True)) as bars:
        shown = module._Bar(bars)
        shown.stage("running on local", 400)
        shown.advanced(StreamProgress(200, 30, 2, 90, 1_714_557_600 * SECOND))
        task = bars.tasks[0]
        assert (task.completed, task.total, task.description) == (200, 400, "running on local")
        text = r"[\d,]+ rows/s, 200 rows, 30 out, 2 rejected, state 90 rows, watermark 2024-05-01 10:00:00"
        assert re.fullmatch(text, task.fields["stream"])
        shown.stage("writing")
        assert (bars.tasks[0].total, bars.tasks[0].fields["stream"]) == (None, "")


def test_no_line_without_the_option(cli: Cli, tmp_path: Path) -> None:
    for side in ("left", "right"):
        pq.write_table(files()[0], tmp_path / f"{side}.parquet")
    done = cli(
        "join left.parquet right.parquet --left-time a,b --right-time a,b --max-uncertainty 2s --within 1s "
        "--confidence 0.5 --stream -o out.parquet --time-unit us"
    )
    assert "rows/s, 1" not in done.stderr
    assert "running on" not in done.stderr


def test_the_first_query_says_that_it_compiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One note for all kernels that are not in the cache, and only where progress is shown."""
    from whenabouts.core.arrays import jit
    from whenabouts.core.arrays.kernel import Kernel
    from whenabouts.core.arrays.kernel_cache import KernelCache

    def twice(x: int) -> int:
        return 2 * x

    for wanted, cached, said in ((True, False, 1), (True, True, 0), (False, False, 0)):
        monkeypatch.setattr(KernelCache, "is_filled", lambda _, cached=cached: cached)
        with module.progress(wanted):
            for _ in range(2):
                kernel = jit.compiled(jit.INT64(jit.INT64))(twice)
                cast(Kernel, kernel).make_ready()
                assert kernel(4) == 8
        assert capsys.readouterr().err.count("note: compiling kernels") == said
    assert not logging.getLogger("whenabouts.kernels").handlers
