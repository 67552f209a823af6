"""Results of the demo's runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one run: its pairs in a fixed order, the number of rejected rows, and seconds."""

    title: str
    pairs: pa.Table
    rejected: int
    seconds: float
