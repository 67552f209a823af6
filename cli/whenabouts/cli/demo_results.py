"""What the runs of the demo gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one of the runs gave: its pairs in a fixed order, its rejects, its time."""

    title: str
    pairs: pa.Table
    rejected: int
    seconds: float
