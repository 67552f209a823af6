"""Every error and every reject reason of the package, with its stable code.

`WA-1xxx` speaks of input rows and files, `WA-2xxx` of the query, `WA-3xxx` of the engine underneath. A problem of
a whole column, file or query is raised; a problem of one row sends that row to the rejects with the same code.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Stable codes; a code never changes its meaning and is never used again."""

    MISSING_COLUMN = "WA-1001"
    WRONG_TYPE = "WA-1002"
    NULL_TIME = "WA-1003"
    REVERSED_INTERVAL = "WA-1004"
    TOO_UNCERTAIN = "WA-1005"
    TOO_CERTAIN = "WA-1006"
    TIME_OUT_OF_RANGE = "WA-1007"
    UNREADABLE_FILE = "WA-1008"
    UNPARSABLE_TIME = "WA-1009"
    LATE = "WA-1010"
    RESERVED_COLUMN = "WA-1011"
    BAD_TEMPLATE = "WA-1012"
    UNKNOWN_TEMPLATE = "WA-1013"
    NULL_GROUP = "WA-1021"
    DUPLICATE_TIMESTAMP = "WA-1022"
    INCOMPARABLE_VALUES = "WA-1023"
    SUM_OUT_OF_RANGE = "WA-1024"
    EMPTY_INPUT = "WA-1031"
    FOREIGN_FILE_SYSTEM = "WA-1041"
    SHED = "WA-1042"
    UNREADABLE_PAYLOAD = "WA-1051"
    AHEAD = "WA-1052"
    TOO_MANY_CANDIDATES = "WA-1053"
    UNKNOWN_SIDE = "WA-1061"
    NOT_AN_INPUT = "WA-1062"
    CHANGES = "WA-1065"
    DIGITS_CUT = "WA-1075"
    NOT_FINITE = "WA-1076"
    DOUBTFUL_UNIT = "WA-1063"
    VALUE_DOES_NOT_FIT = "WA-1067"
    UNREADABLE_FRAME = "WA-1068"
    UNFIT_TIMES = "WA-1081"
    MIXED_FRAMES = "WA-1069"

    BAD_CONFIDENCE = "WA-2001"
    BAD_DURATION = "WA-2002"
    NEGATIVE_DURATION = "WA-2003"
    ONE_SIDED_ON_STREAM = "WA-2004"
    EMPTY_CONDITION = "WA-2005"
    BAD_OPTION = "WA-2006"
    NOT_AVAILABLE = "WA-2007"
    KEY_TYPES_DIFFER = "WA-2008"
    COLUMN_CLASH = "WA-2009"
    UNBOUNDED_STATE = "WA-2010"
    UNKNOWN_CLOCK_OFFSET = "WA-2011"
    BAD_WINDOW = "WA-2021"
    BAD_EQUIVALENCE = "WA-2022"
    NO_EARLY = "WA-2023"
    NOT_SLOTTED = "WA-2041"
    BAD_EDGE = "WA-2061"
    DISCONNECTED_GRAPH = "WA-2062"
    CONTRADICTORY_WINDOWS = "WA-2063"
    NO_CONFIDENCE = "WA-2064"
    BAD_PREDICATE = "WA-2065"
    PLAN_INFEASIBLE = "WA-2071"
    BAD_STATISTICS = "WA-2072"
    NAME_TAKEN = "WA-2073"
    UNKNOWN_NAME = "WA-2074"
    BAD_PLAN_FILE = "WA-2075"
    BAD_SQL = "WA-2091"
    SQL_COLUMN = "WA-2092"
    SQL_TYPES = "WA-2093"
    BAD_QUERY_TEXT = "WA-2111"
    UNSUPPORTED_TEXT = "WA-2112"
    UNKNOWN_STREAM = "WA-2113"
    NO_TIME = "WA-2114"
    NO_LATENESS = "WA-2051"
    WATERMARKS_CLASH = "WA-2052"
    OUTPUT_MODE = "WA-2053"
    AT_LEAST_ONCE = "WA-2054"
    SINGLE_BUCKET = "WA-2081"
    SLIDE_OVER_WINDOW = "WA-2082"
    BAD_IDENTITY = "WA-2101"
    CHOICE_REFUSED = "WA-2161"
    BAD_SETTING = "WA-2151"
    LATENCY_NOT_KEPT = "WA-2141"
    BAD_PAYLOAD = "WA-2171"
    TOO_MANY_UNCERTAIN = "WA-2182"
    COLLATED = "WA-2186"
    TOO_MUCH_OUTPUT = "WA-2201"
    CLOCK_NOT_IDENTIFIABLE = "WA-2221"
    DELAY_NOT_CALIBRATED = "WA-2222"
    OPERATOR_NAME_TAKEN = "WA-2191"
    MIXED_ZONES = "WA-2192"

    NO_JAVA = "WA-3001"
    ENGINE_VERSION = "WA-3002"
    STATE_FORMAT = "WA-3003"
    MIXED_INPUTS = "WA-3004"
    ENGINE_FAILED = "WA-3005"
    STATE_LACKS_ROWS = "WA-3006"
    NO_EVENT_TIME = "WA-3021"
    OTHER_REPLAY = "WA-3031"
    OTHER_QUERY = "WA-3032"
    STATE_FULL = "WA-3033"
    NO_BROKER = "WA-3041"


REASONS: dict[Code, str] = {
    Code.NULL_TIME: "a time is null",
    Code.REVERSED_INTERVAL: "t_min is after t_max",
    Code.TOO_UNCERTAIN: "the interval is longer than the declared max_uncertainty",
    Code.TOO_CERTAIN: "the interval is shorter than the declared min_uncertainty",
    Code.TIME_OUT_OF_RANGE: "a time lies outside the years 1 to 9999",
    Code.UNPARSABLE_TIME: "a time could not be read",
    Code.UNKNOWN_TEMPLATE: "the row names no registered template",
    Code.LATE: "t_max is behind the watermark",
    Code.NULL_GROUP: "a group column is null",
    Code.DUPLICATE_TIMESTAMP: "duplicate_timestamp: another row of the group has this time and comes before in order",
    Code.SHED: "the state was full",
    Code.UNREADABLE_PAYLOAD: "the payload is no record of the declared columns",
    Code.TOO_MANY_CANDIDATES: "too many right rows may prevail",
    Code.UNKNOWN_SIDE: "the row names neither the left nor the right side",
    Code.AHEAD: "t_max is further ahead of the time at which the record was received than max_ahead allows",
}
"""The reason of a rejected row, by code (the codes that single rows can have)."""


class WhenaboutsError(Exception):
    """Base of all errors raised on purpose: `code`, the problem with the offending value, and a hint.

    >>> print(QueryError(Code.BAD_CONFIDENCE, "confidence is 1.5", "give a number in (0, 1]"))
    WA-2001: confidence is 1.5 (hint: give a number in (0, 1])
    >>> import pickle
    >>> pickle.loads(pickle.dumps(QueryError(Code.BAD_CONFIDENCE, "it is 2", "less"))).hint
    'less'
    """

    def __init__(self, code: Code, problem: str, hint: str = "") -> None:
        # The one argument is the whole text: what shows an exception by its arguments (Flink's thread mode) shows that.
        super().__init__(f"{code}: {problem}" + (f" (hint: {hint})" if hint else ""))
        self.code = code
        self.problem = problem
        self.hint = hint

    def __reduce__(self) -> tuple[type[WhenaboutsError], tuple[Code, str, str]]:
        return type(self), (self.code, self.problem, self.hint)


class InputError(WhenaboutsError, ValueError):
    """A column, file or table cannot be used (`WA-1xxx`)."""


class QueryError(WhenaboutsError, ValueError):
    """The query itself is wrong, or asks for something that cannot be had (`WA-2xxx`)."""


class EngineError(WhenaboutsError, RuntimeError):
    """The engine underneath is missing, unfit or failed (`WA-3xxx`)."""


class DoubtfulTimesWarning(UserWarning):
    """Most integer times of a column look like another unit than microseconds (`WA-1063`)."""


class MixedZonesWarning(UserWarning):
    """Times without a zone are read as UTC beside times of another zone (`WA-2192`)."""


class EmptyInputWarning(UserWarning):
    """A stream of a window join, or the right side of an as-of join, has no rows (`WA-1031`)."""


class RejectedRowsWarning(UserWarning):
    """Some input rows were rejected; the message counts them by code."""


class DigitsCutWarning(UserWarning):
    """Times finer than a microsecond lost their last digits; the message counts them (`WA-1075`)."""


class LossyQueryWarning(UserWarning):
    """A query leaves rows out by its very options: a slide longer than its window (`WA-2082`)."""


class SingleBucketWarning(UserWarning):
    """A query cannot be spread over machines: a window counts the rows of all groups together, or an as-of join has
    neither a key nor time slots (`WA-2081`)."""


class AtLeastOnceWarning(UserWarning):
    """A stream is written to a sink that gets rows again after a failure, or that cannot commit them (`WA-2054`)."""


class NotFiniteWarning(UserWarning):
    """Chance functions met values that are NaN or infinite, and are NaN there; the message counts rows (`WA-1076`)."""
