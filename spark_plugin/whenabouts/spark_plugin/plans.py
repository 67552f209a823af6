"""The contents of a DataFrame's plan: watermarks, and the parts that were given a name.

The plan is Spark's own where the session has a JVM. A client of Spark Connect has what was built in it; what lies
behind a view only the server knows, and tells as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from pyspark.sql import DataFrame

_WATERMARK = re.compile(r"^[\s:|+*!~-]*EventTimeWatermark\b\s*(?:[^#,\n]*,\s*)?([^\n]*?)#\d", re.MULTILINE)


def watermarks(df: DataFrame) -> list[str]:
    """The columns of all watermarks in a plan, however far up, also of those that no column shows any more."""
    plan = _plan_in_jvm(df)
    if plan is None:
        text: str = cast(Any, df)._explain_string(extended=True)
        return watermarks_in(text)
    nodes = _walk(plan, _children_in_jvm, lambda node: node.nodeName() == "EventTimeWatermark")
    return [str(node.eventTime().name()) for node in nodes]


def watermarks_in(explained: str) -> list[str]:
    """The columns of the watermarks in a plan as text; a name may have any character.

    >>> watermarks_in("+- EventTimeWatermark 0b1f-22, time (s)#12: timestamp, 10 seconds")
    ['time (s)']
    >>> watermarks_in("   :- EventTimeWatermark t#7, 1 minutes")
    ['t']
    """
    return _WATERMARK.findall(explained)


def aliased(df: DataFrame, prefix: str) -> list[tuple[str, DataFrame]]:
    """The parts of a plan with an alias that begins so, and their aliases; of a part within a part the outer one."""
    plan = _plan_in_jvm(df)
    if plan is None:
        return _aliased_in_client(df, prefix)
    named = _walk(
        plan, _children_in_jvm, lambda node: node.nodeName() == "SubqueryAlias" and node.alias().startswith(prefix)
    )
    session: Any = df.sparkSession
    datasets = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")
    made: Any = type(df)
    return [(str(node.alias()), made(datasets.ofRows(session._jsparkSession, node), session)) for node in named]


def _plan_in_jvm(df: DataFrame) -> Any | None:
    """The analysed plan, None over Spark Connect."""
    frame = getattr(df, "_jdf", None)
    return None if frame is None else frame.queryExecution().analyzed()


def _children_in_jvm(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(index) for index in range(children.size())]


def _aliased_in_client(df: Any, prefix: str) -> list[tuple[str, DataFrame]]:
    from pyspark.sql.connect.plan import LogicalPlan, SubqueryAlias  # needs what only Spark Connect needs

    def children(node: LogicalPlan) -> list[LogicalPlan]:
        held = [value for field in vars(node).values() for value in (field if isinstance(field, list) else [field])]
        found = [value for value in held if isinstance(value, LogicalPlan)]
        return [value for index, value in enumerate(found) if not any(value is other for other in found[:index])]

    def wanted(node: LogicalPlan) -> bool:
        return isinstance(node, SubqueryAlias) and node._alias.startswith(prefix)

    return [(node._alias, type(df)(node, df.sparkSession)) for node in _walk(df._plan, children, wanted)]


def _walk(root: Any, children: Callable[[Any], list[Any]], wanted: Callable[[Any], bool]) -> Iterator[Any]:
    """The wanted nodes of a tree from the root on; what lies below one is not looked at."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if wanted(node):
            yield node
        else:
            waiting += reversed(children(node))
