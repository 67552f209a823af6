"""What a window maintains for aggregates, in addition to its tuples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.tree import Expression, holds
from whenabouts.core.runtime.blocks import PREFIX


@dataclass(frozen=True)
class AggregateNeeds:
    """`extremes`: queues for greatest and least durations; `median`: sorted durations; `where`: which tuples count."""

    extremes: bool = False
    median: bool = False
    where: pc.Expression | Expression | None = None

    def same(self, other: AggregateNeeds) -> bool:
        """Whether both need the same."""
        one, another = self.where, other.where
        if isinstance(one, pc.Expression) and isinstance(another, pc.Expression):
            same = bool(one.equals(another))
        else:
            same = type(one) is type(another) and one == another
        return same and (self.extremes, self.median) == (other.extremes, other.median)

    def passing(self, tuples: pa.Table) -> BoolArray:
        """Which tuples pass the filter, given their group and value columns."""
        if self.where is None:
            return np.ones(tuples.num_rows, bool)
        if isinstance(self.where, Expression):
            return holds(self.where, tuples)
        index = PREFIX + "index"
        found = np.zeros(tuples.num_rows, bool)
        try:
            passed = tuples.append_column(index, pa.array(np.arange(len(found)))).filter(self.where)
        except (pa.ArrowException, TypeError, ValueError) as error:
            problem = f"where, {self.where}, fails: {str(error).splitlines()[0]}"
            raise QueryError(Code.BAD_PREDICATE, problem, f"it reads {', '.join(tuples.column_names)}") from error
        found[passed.column(index).to_numpy()] = True
        return found
