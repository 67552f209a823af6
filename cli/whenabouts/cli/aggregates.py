"""`whenabouts join --aggregate`: numbers for each left row in place of pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whenabouts.cli.options import CommonOptions, key_columns
from whenabouts.cli.two_sides import times_of_sides
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.condition_keywords import condition_of

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.cli.inputs import Input
    from whenabouts.core.join_aggregate.query import JoinAggregate
    from whenabouts.core.runtime.keys import Keys

_Command = TypeVar("_Command", bound=Callable[..., Any])

OF_PAIRS = {
    "best": None, "ties": "earliest", "where": None, "why": None, "picture": None, "strategy": "auto",
    "suffixes": "_left,_right", "no_probability": False,
}  # fmt: skip
"""Options that say how pairs are chosen or shown, and their defaults: there are no pairs."""

SAMPLED = 500
"""For how many left rows the chance functions are computed, to say what they cost."""


def aggregate_options(command: _Command) -> _Command:
    """`--aggregate` and `--max-uncertain-per-row`."""
    command = click.option(
        "--max-uncertain-per-row",
        type=click.IntRange(min=1),
        metavar="K",
        help="With --aggregate, stop if a left row has more uncertain right rows.",
    )(command)
    return click.option(
        "--aggregate",
        multiple=True,
        metavar="NAME=FUNCTION[:ARG]",
        help="A number for each left row in place of pairs, as n=count, total=sum:amount, nobody=p_none, "
        "three=p_at_least:3; may be repeated.",
    )(command)


def aggregate_query(common: CommonOptions, arguments: dict[str, Any]) -> JoinAggregate:
    """The query that the options describe. Errors in them are reported before any file is read.

    Raises QueryError WA-2006 for options that speak of pairs, besides those of `JoinAggregate`.
    """
    from whenabouts.core.join_aggregate.query import JoinAggregate

    asked: dict[str, str] = {}
    for text in arguments["aggregate"]:
        name, equals, function = text.partition("=")
        if not (name and equals and function):
            raise click.BadParameter(f"{text!r} is not NAME=FUNCTION or NAME=FUNCTION:ARG", param_hint="--aggregate")
        if name in asked:
            raise QueryError(Code.COLUMN_CLASH, f"--aggregate names {name!r} twice", "give another name")
        asked[name] = function
    for option, default in OF_PAIRS.items():
        if arguments[option] != default:
            spelled = "--" + option.replace("_", "-")
            raise QueryError(
                Code.BAD_OPTION, f"{spelled} is given with --aggregate, which gives no pairs", "leave one of them out"
            )
    left_time, right_time = times_of_sides(arguments)
    query = JoinAggregate(
        left_time=left_time,
        right_time=right_time,
        condition=condition_of(arguments, needs_confidence=False),
        aggregates=asked,
        on=key_columns(arguments["on"]),
        how=arguments["how"] or "left_outer",
        lateness=common.lateness_by_side,
        time_slots=arguments["time_slots"],
        most_uncertain=arguments["max_uncertain_per_row"],
    )
    for option in ("max_pairs", "max_pairs_per_row"):
        if arguments[option] is not None and not any(each.function == "collect" for each in query.aggregates):
            raise QueryError(
                Code.BAD_OPTION,
                f"--{option.replace('_', '-')} is given, and no pair is written",
                "only collect writes them: leave it out",
            )
    return query


def partner_lines(query: JoinAggregate, inputs: tuple[Input, ...]) -> list[str]:
    """How many right rows the left rows can meet, how many of them cost a probability, and what chances cost.

    Chance functions are computed for a sample of left rows, other numbers for none.
    """
    from whenabouts.cli.expected_pairs import keyed_blocks
    from whenabouts.core.join_aggregate.partners import PartnerSearch
    from whenabouts.core.runtime.keys import Keys

    left, right = keyed_blocks(inputs, (query.left_time, query.right_time), query.key_columns)
    if not left.num_rows:
        return ["partners: no left row has a key"]
    keys = Keys(query.key_columns, [left.schema, right.schema], query.inputs)
    found = PartnerSearch(query, keys, left, right)
    beside = found.beside
    total, most = int(beside.sum()), int(beside.max())
    return [
        f"partners: {found.sure:,} right rows in sure ranges, which cost nothing each",
        f"beside these {total:,} whose probability is computed, at most {most:,} for a left row",
        *_chance_lines(query, keys, left, right),
    ]


def _chance_lines(query: JoinAggregate, keys: Keys, left: pa.Table, right: pa.Table) -> list[str]:
    """The chance terms, counted for left rows at equal distances. None if no chance function is asked."""
    import pyarrow as pa

    from whenabouts.core import metrics
    from whenabouts.core.join_aggregate.answers import answers_of

    chances = tuple(each for each in query.aggregates if not each.decided)
    if not chances:
        return []
    asked = replace(query, aggregates=chances, how="left_outer", most_uncertain=None, folding="auto")
    types = pa.schema([pa.field(each.name, each.type_from(right.schema)) for each in chances])
    rows = range(0, left.num_rows, -(-left.num_rows // SAMPLED))
    counts: Counter[str] = Counter()
    answers_of(asked, keys, types, left.take(pa.array(rows)).combine_chunks(), right, counts)
    terms = round(counts[metrics.CHANCE_TERMS] * left.num_rows / len(rows))
    told = "" if len(rows) == left.num_rows else f", estimated from {len(rows):,} left rows"
    return [f"chance terms: {terms:,}, which are points of quadrature times uncertain partners{told}"]
