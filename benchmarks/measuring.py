"""Measures contenders alternately, in one run, on the same input; the run fails unless their answers agree.

A script makes a `Suite`, lets it `compare` contenders on one workload after the other, and saves it. What was measured
goes to `benchmarks/results/NAME.json` in pyperf's format (so `python -m pyperf stats|hist|compare_to` read it), each
series under the name "workload / contender", with the machine, the versions and the hash of the answer. `promises.toml`
lists the ratios that users may rely on; `page.py` renders docs/performance.md and its appendix.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
import pyarrow as pa
import pyperf
from numpy.typing import NDArray

pa.set_cpu_count(1)  # contenders have one thread each, unless they set another number

RESULTS = Path(__file__).parent / "results"
PEERS = ("numpy", "pyarrow", "numba", "duckdb", "polars", "pyspark", "apache-flink", "pathway", "bytewax")
SEPARATOR = " / "
_MACHINE = ("cpu_model_name", "cpu_count", "python_version")  # pyperf knows kernels, paths and host names as well

Result = TypeVar("Result")
Clock = Callable[[], float]


class DisagreementError(click.ClickException):
    """Contenders gave different answers: their times mean nothing."""


@dataclass
class Suite:
    """The series of one script. `rounds`: how often each contender runs, alternating with the others."""

    name: str
    rounds: int = 5
    clock: Clock = time.process_time
    _series: list[pyperf.Benchmark] = field(default_factory=list)
    _claims: list[dict[str, Any]] = field(default_factory=list)

    def compare(
        self,
        workload: str,
        contenders: Mapping[str, Callable[[], Result]],
        digest: Callable[[Result], tuple[int, int]],
        *,
        once: Iterable[str] = (),
        incomparable: Iterable[str] = (),
        **facts: str | float,
    ) -> dict[str, float]:
        """Median CPU-seconds of each contender, by name, after one run each to warm up and to compare the answers.

        The order is another one in each round: the threads of some peers return memory to the system for a while after
        their answer, and whoever comes next pays for it.

        `digest`: rows and hash of an answer. `once`: very slow contenders, for which the first round is enough.
        `incomparable`: contenders whose answer differs on purpose (a physical limit, exact times). `facts` are stored
        with each series.
        Raises DisagreementError.
        """
        answers = {name: digest(run()) for name, run in contenders.items() if name not in set(once)}
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for turn in range(self.rounds):
            for name in random.Random(turn).sample(list(contenders), len(contenders)):
                if turn and name in set(once):
                    continue
                run = contenders[name]
                begun, wall = self.clock(), time.perf_counter()
                result = run()
                spent[name].append((max(self.clock() - begun, 1e-9), time.perf_counter() - wall))
                answers.setdefault(name, digest(result))
                del result
        agreed = {name: answer for name, answer in answers.items() if name not in set(incomparable)}
        if len(set(agreed.values())) > 1:
            raise DisagreementError(f"{workload}: the contenders disagree (rows, hash): {agreed}")
        for name, times in spent.items():
            rows, hashed = answers[name]
            told = dict(facts, rows_out=rows, hash=f"{hashed:016x}", wall=statistics.median(wall for _, wall in times))
            self.record(f"{workload}{SEPARATOR}{name}", [cpu for cpu, _ in times], **told)
        medians = {name: statistics.median(cpu for cpu, _ in times) for name, times in spent.items()}
        _tell(workload, medians, spent, next(iter(agreed.values()))[0])
        return medians

    def record(self, series: str, values: Sequence[float], *, unit: str = "second", **facts: str | float) -> None:
        """Store values measured elsewhere. `unit`: second, byte or integer (pyperf's)."""
        about = {"name": series, "unit": unit, "clock": "CPU of the process and its children", **machine(), **facts}
        self._series.append(pyperf.Benchmark([pyperf.Run(list(values), metadata=about, collect_metadata=False)]))

    def claim(self, figure: str, claim: str, *, holds: bool, why: str, plots: Sequence[str] = ()) -> None:
        """What a paper says about one of its figures, in our words; whether our curve agrees, and the reason."""
        self._claims.append({"figure": figure, "claim": claim, "holds": holds, "why": why, "plots": list(plots)})
        click.echo(f"{figure}: {'holds' if holds else 'does not hold'}: {claim} ({why})")

    def finding(self, title: str, text: str, *, plots: Sequence[str] = ()) -> None:
        """What these measurements show where no paper makes a claim."""
        self._claims.append({"figure": title, "why": text, "plots": list(plots)})
        click.echo(f"{title}: {text}")

    def save(self, folder: Path = RESULTS) -> None:
        """Write the series to `folder`/NAME.json, the claims beside it, replacing earlier ones of the same name."""
        folder.mkdir(exist_ok=True)
        path, told = folder / f"{self.name}.json", folder / f"{self.name}.claims.json"
        if self._series:
            before = pyperf.BenchmarkSuite.load(str(path)) if path.exists() else ()
            series = {one.get_name(): one for one in [*before, *self._series]}
            pyperf.BenchmarkSuite(list(series.values())).dump(str(path), replace=True)
        if self._claims:
            earlier = json.loads(told.read_text()) if told.exists() else []
            claims = {claim["figure"]: claim for claim in [*earlier, *self._claims]}
            told.write_text(json.dumps(list(claims.values()), indent=1) + "\n")
        click.echo(f"wrote results/{self.name}.json")


def _tell(workload: str, medians: Mapping[str, float], spent: Mapping[str, list[Any]], rows: int) -> None:
    click.echo(f"{workload}: {rows:,} rows, same answers")
    first = next(iter(medians.values()))
    for name, median in medians.items():
        values = [cpu for cpu, _ in spent[name]]
        spread = f"{min(values):.4f} to {max(values):.4f}, {len(values)} runs"
        click.echo(f"  {name:28s} {median:9.4f} CPU-s  {median / first:7.2f}x   ({spread})")


def machine() -> dict[str, str | float]:
    """What this machine is and which versions run on it, without names of paths or hosts."""
    known = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    about: dict[str, str | float] = {name: known[name] for name in _MACHINE if name in known}
    for package in PEERS:
        try:
            about[f"{package}_version"] = version(package)
        except PackageNotFoundError:
            continue
    return about | {"date": time.strftime("%Y-%m-%d"), "load": known.get("load_avg_1min", 0.0)}


def digest_of_columns(blocks: Iterable[Sequence[NDArray[Any]]]) -> tuple[int, int]:
    """Rows of blocks of columns, and a hash of their multiset whatever their order: the sum of mixed 64-bit words."""
    rows, total = 0, 0
    for columns in blocks:
        for first in range(0, len(columns[0]), 1 << 20):
            word = np.zeros(len(columns[0][first : first + (1 << 20)]), np.uint64)
            for column in columns:
                word = _mixed(word ^ _bits(column[first : first + (1 << 20)]))
            total += int(word.sum(dtype=np.uint64))
        rows += len(columns[0])
    return rows, total % 2**64


def digest_of_table(table: pa.Table) -> tuple[int, int]:
    """The same for a table, by its columns in order; a null counts as the least integer."""
    columns = [_numbers(table.column(name)) for name in table.column_names]
    return digest_of_columns([columns]) if columns else (table.num_rows, 0)


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        raise TypeError("hash numbers: give texts as codes")
    if column.null_count and pa.types.is_integer(column.type):
        column = column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min)
    return np.asarray(column.to_numpy())


def _bits(column: NDArray[Any]) -> NDArray[np.uint64]:
    if column.dtype.kind == "f":
        return (column.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 is 0.0
    return column.astype(np.int64).view(np.uint64)


def _mixed(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Splitmix64's finaliser (Steele, Lea and Flood, 2014)."""
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
