"""Takes the clauses that SQL does not have out of the tokens of a query.

They are those of the papers: ``WITH THRESHOLD p`` after ``WINDOW(A, B) = ...`` (PTJoin), ``[RANGE 24 HOUR SLIDE 1
HOUR]``, ``[ROWS 100]`` and ``[PARTITION BY g ROWS 100]`` after a stream (CQL), ``COALESCE ON ...`` and ``VALID(a)
OVERLAPS VALID(b)`` (TSQL2); and ``EMIT EARLY`` at the end, for early answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.sql import check_length, check_size, line_and_column
from whenabouts.core.temporal_queries.periods import PREDICATES

_END_OF_COALESCE = ("FROM", "WHERE", "GROUP", "GROUP BY", "HAVING", "ORDER", "ORDER BY", "LIMIT", ";")
_AFTER_OURS = (*_END_OF_COALESCE, "AND", "ON", "USING", "WITH", "TOLERANCE", "MATCH_CONDITION")
"""What may follow a clause that is taken out of an as-of join: an operator would go on with what is before it."""
_NUMBER, _STRING = "NUMBER", "STRING"
_SHOWN = 200
"""The most characters of a text that an error quotes."""


@dataclass(frozen=True, slots=True)
class Place:
    """A span of a query's text, from `start` up to `end`, exclusive."""

    text: str
    start: int
    end: int

    def __str__(self) -> str:
        line, column = line_and_column(self.text, self.start)
        return f"line {line}, column {column}"

    @property
    def words(self) -> str:
        """The text of the span, shortened if it is long."""
        words = self.text[self.start : self.end]
        return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"

    def wrong(self, problem: str, expected: str, code: Code = Code.BAD_QUERY_TEXT) -> QueryError:
        """An error at this place: what is wrong, and what was expected."""
        return QueryError(code, f"{self}: {problem}", f"expected {expected}")

    def placed(self, error: QueryError) -> QueryError:
        """An error of what the text asks for, at this place."""
        return QueryError(error.code, f"{self}: {error.problem}", error.hint)


@dataclass(frozen=True, slots=True)
class WindowClause:
    """``[RANGE r SLIDE s]`` or ``[PARTITION BY g ROWS n SLIDE s]``: durations as text, numbers of rows as int."""

    place: Place
    range: str | None = None
    rows: int | None = None
    slide: str | int | None = None
    partition: tuple[str, ...] = ()


class Cutter:
    """One pass over the tokens: own clauses are taken out, all other tokens go into ``rest``."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._at = text, _tokens(text), 0
        self.rest: list[Any] = []
        self.coalesce: list[Any] = []
        self.windows: dict[int, WindowClause] = {}
        self.coalesce_at: Place | None = None
        self.within: str | None = None
        self.emit: str | None = None
        self.emit_at: Place | None = None
        self.match: list[Any] = []
        self.match_at: Place | None = None
        self.tolerance: str | None = None
        self.tolerance_at: Place | None = None
        self.threshold: float | None = None
        words = [token.text.upper() for token in self._tokens]
        joins = ("JOIN", "LEFT", "INNER", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI")
        self._asof = any(word == "ASOF" and after in joins for word, after in pairwise(words))

    def cut(self) -> None:
        """Read all tokens. Raises: QueryError WA-2111 for a clause that is not understood."""
        while self._at < len(self._tokens):
            if self._is("[") and self._is("RANGE", "ROWS", "PARTITION", "PARTITION BY", ahead=1):
                self._window()
            elif self._is("COALESCE") and self._is("ON", ahead=1):
                self._coalesce_on()
            elif self._is("WITH") and self._is("THRESHOLD", ahead=1):
                self._threshold()
            elif self._emits():
                self._emit()
            elif self._asof and self._is("MATCH_CONDITION") and self._is("(", ahead=1):
                self._match_condition()
            elif self._asof and self._is("TOLERANCE") and (self._is("INTERVAL", ahead=1) or self._is_value(1)):
                self._tolerance()
            elif self._relation() is not None:
                self._related()
            elif self._is("RELATION", "THRESHOLD") and self._is("(", ahead=1):  # what we write ourselves, see below
                self._fail("VALID(a) OVERLAPS VALID(b), or WITH THRESHOLD 0.9")
            elif self._is("INTERSECT", "OVERLAPS") and self._is("(", ahead=1):  # functions here, operators to SQL
                self.rest.append(_like(self._tokens[self._at], "VAR", self._word()))
                self._next()
            else:
                self.rest.append(self._next())

    def _word(self, ahead: int = 0) -> str:
        place = self._at + ahead
        token = self._tokens[place] if place < len(self._tokens) else None
        return "" if token is None or token.token_type.name == _STRING else str(token.text).upper()

    def _is(self, *words: str, ahead: int = 0) -> bool:
        return self._word(ahead) in words

    def _next(self) -> Any:
        self._at += 1
        return self._tokens[self._at - 1]

    def _place(self) -> Place:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            return Place(self._text, token.start, token.end + 1)
        return Place(self._text, len(self._text), len(self._text))

    def _fail(self, expected: str) -> NoReturn:
        place = self._place()
        raise place.wrong(f"found {place.words!r}" if place.words else "the text ends", expected)

    def _expect(self, *words: str) -> Any:
        if not self._is(*words):
            self._fail(" or ".join(words))
        return self._next()

    def _expect_after(self, *words: str, expected: str) -> None:
        """Refuse what follows a clause of ours, unless it is one of these words or the end."""
        if self._at < len(self._tokens) and not self._is(*words):
            self._fail(expected)

    def _value(self, kind: str) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at].token_type.name not in (_NUMBER, _STRING):
            self._fail(kind)
        return str(self._next().text)

    def _name(self) -> str:
        if not self._word().isidentifier():
            self._fail("the name of a column")
        return str(self._next().text)

    def _duration(self) -> str:
        quoted = self._at < len(self._tokens) and self._tokens[self._at].token_type.name == _STRING
        number = self._value("a number and a unit, as 24 HOUR")
        if quoted and (self._is("SLIDE", "SLIDES") or not self._word().isalpha()):
            return number  # '1h30m' has its units in it
        if not self._word().isalpha():
            self._fail("a unit of time, as HOUR or SECOND")
        return f"{number} {self._next().text}"

    def _rows(self) -> int:
        place = self._place()
        number = self._value("a number of rows")
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            raise place.wrong(f"found {number[:_SHOWN]!r}", "a whole number of rows")
        return int(number)

    def _window(self) -> None:
        if not self.rest:
            self._fail("SELECT")
        name, opening = self.rest[-1], self._place()
        self._next()
        partition: list[str] = []
        if self._is("PARTITION", "PARTITION BY"):
            if self._next().text.upper() == "PARTITION":
                self._expect("BY")
            partition.append(self._name())
            while self._is(","):
                self._next()
                partition.append(self._name())
            if not self._is("ROWS"):
                self._fail("ROWS")
        width: str | None = None
        rows: int | None = None
        slide: str | int | None = None
        if self._expect("RANGE", "ROWS").text.upper() == "RANGE":
            width = self._duration()
        else:
            rows = self._rows()
        if self._is("SLIDE", "SLIDES"):
            self._next()
            unit = self._word(1)
            counted = rows is not None and (unit == "]" or unit == "ROWS")
            slide = self._rows() if counted else self._duration()
            if counted and self._is("ROWS"):
                self._next()
        closing = self._expect("]")
        place = Place(self._text, opening.start, closing.end + 1)
        if name.start in self.windows:
            raise place.wrong("a second window of one stream", "one window behind a stream")
        self.windows[name.start] = WindowClause(place, width, rows, slide, tuple(partition))

    def _coalesce_on(self) -> None:
        if self.coalesce_at is not None:
            self._fail("COALESCE ON once")
        first = self._next()
        last = self._next()
        self.coalesce_at = Place(self._text, first.start, last.end + 1)
        self.coalesce = [self._tokens[0]]  # SELECT: what follows is a list of expressions, as in a query
        while self._at < len(self._tokens) and not (self._is(*_END_OF_COALESCE, "WITHIN") or self._emits()):
            self.coalesce.append(self._next())
        if self._is("WITHIN"):
            self._next()
            self.within = self._value("the greatest difference, a number")
            if not self._emits():
                self._expect_after(*_END_OF_COALESCE, expected="the end, WHERE or GROUP BY: a difference has no unit")

    def _emits(self) -> bool:
        """Whether ``EMIT EARLY`` or ``EMIT FINAL`` ends the query here."""
        return self._is("EMIT") and self._is("EARLY", "FINAL", ahead=1) and self._word(2) in ("", ";")

    def _emit(self) -> None:
        first, last = self._next(), self._next()
        self.emit = last.text.lower()
        self.emit_at = Place(self._text, first.start, last.end + 1)

    def _is_value(self, ahead: int) -> bool:
        at = self._at + ahead
        return at < len(self._tokens) and self._tokens[at].token_type.name in (_NUMBER, _STRING)

    def _match_condition(self) -> None:
        """``MATCH_CONDITION (...)`` is taken out: USING may follow, which cannot be combined with ON."""
        if self.match_at is not None:
            self._fail("MATCH_CONDITION once")
        first = self._next()
        opening = self._next()
        self.match, depth = [self._tokens[0]], 1  # SELECT, as in `_coalesce_on`
        while depth:
            if self._at >= len(self._tokens):
                raise Place(self._text, opening.start, opening.end + 1).wrong("( is not closed", ")")
            depth += self._is("(") - self._is(")")
            token = self._next()
            if depth:
                self.match.append(token)
        self.match_at = Place(self._text, first.start, token.end + 1)
        self._expect_after(*_AFTER_OURS, expected="ON, USING, WHERE or the end")

    def _tolerance(self) -> None:
        """``TOLERANCE '2 s'`` or ``TOLERANCE INTERVAL '2' SECOND``."""
        if self.tolerance_at is not None:
            self._fail("TOLERANCE once")
        first = self._next()
        if self._is("INTERVAL"):
            self._next()
        written = self._value("a duration, as '2 s'")
        if not any(letter.isalpha() for letter in written):
            if not self._word().isalpha():
                self._fail("a unit of time, as SECOND")
            written = f"{written} {self._next().text}"
        self.tolerance = written
        self.tolerance_at = Place(self._text, first.start, self._tokens[self._at - 1].end + 1)
        self._expect_after(*_AFTER_OURS, expected="AND, WITH THRESHOLD, WHERE or the end")

    def _threshold(self) -> None:
        """``WITH THRESHOLD p`` becomes ``AND THRESHOLD(p)`` after its window; in an as-of join it is taken out."""
        with_, threshold = self._next(), self._next()
        place = self._place()
        if self._is("."):  # .6 is two tokens
            point = self._next()
            digits = self._value("a probability, as 0.6")
            if not (digits.isascii() and digits.isdigit()):
                raise place.wrong(f"found {'.' + digits[:_SHOWN]!r}", "a probability, as 0.6")
            number = f"0.{digits}"
            value = _like(point, _NUMBER, number)
        else:
            number = self._value("a probability, as 0.6")
            value = self._tokens[self._at - 1]
            try:
                float(number)
            except ValueError:
                raise place.wrong(f"found {number[:_SHOWN]!r}", "a probability, as 0.6") from None
        if self._asof:
            if self.threshold is not None:
                raise place.wrong("a second THRESHOLD", "one in an as-of join")
            self.threshold = float(number)
            self._expect_after(*_AFTER_OURS, expected="AND, TOLERANCE, WHERE or the end")
            return
        self.rest += [_like(with_, "AND", "AND"), threshold, *_parentheses(threshold, [value])]

    def _relation(self) -> str | None:
        """The relation's name if ``VALID ( a ) NAME VALID ( b )`` follows."""
        here = self._is("VALID") and self._is("(", ahead=1) and self._is(")", ahead=3) and self._is("VALID", ahead=5)
        return self._word(4).lower() if here and self._word(4).isidentifier() else None

    def _related(self) -> None:
        """``VALID(a) NAME VALID(b)`` becomes ``RELATION('name', a, b)``."""
        name = self._relation()
        relation = self._tokens[self._at + 4]
        if name not in PREDICATES:
            place = Place(self._text, relation.start, relation.end + 1)
            raise place.wrong(f"found {place.words!r}", f"one of {', '.join(PREDICATES).upper()}")
        for ahead, what in ((6, "("), (8, ")")):
            if not self._is(what, ahead=ahead):
                self._at += ahead
                self._fail(what)
        first, second = self._tokens[self._at + 2], self._tokens[self._at + 7]
        comma = _like(relation, "COMMA", ",")
        arguments = [_like(relation, _STRING, name), comma, first, comma, second]
        self.rest += [_like(relation, "VAR", "RELATION"), *_parentheses(relation, arguments)]
        self._at += 9


def _like(token: Any, kind: str, text: str) -> Any:
    """A token of another kind at the same position."""
    return type(token)(type(token.token_type)[kind], text, token.line, token.col, token.start, token.end)


def _parentheses(token: Any, inside: list[Any]) -> list[Any]:
    return [_like(token, "L_PAREN", "("), *inside, _like(token, "R_PAREN", ")")]


def _tokens(text: str) -> list[Any]:
    try:
        from sqlglot.dialects.dialect import Dialect
        from sqlglot.errors import TokenError
    except ImportError as error:
        raise QueryError(Code.NOT_AVAILABLE, "queries as text need sqlglot", "pip install 'whenabouts[sql]'") from error
    check_length(text)
    try:
        found = list(Dialect.get_or_raise("").tokenize(text))
    except TokenError:
        raise _unclosed(text) from None
    check_size(found, text)
    if not found:
        raise Place(text, 0, 0).wrong("the query is empty", "SELECT")
    if found[0].text.upper() != "SELECT":
        place = Place(text, found[0].start, found[0].end + 1)
        raise place.wrong(f"found {place.words!r}", "SELECT")
    return found


def _unclosed(text: str) -> QueryError:
    """The error for text that cannot be tokenized: an unclosed quote."""
    for quote in ("'", '"', "`"):
        if text.count(quote) % 2:
            at = text.rfind(quote)
            return Place(text, at, at + 1).wrong(f"{quote} is not closed", f"a closing {quote}")
    return Place(text, 0, len(text)).wrong("the text cannot be read", "SQL")
