"""Event time of engines that work element by element (Flink): milliseconds, inclusive. Operators have microseconds,
exclusive.

The engine's watermark w says that no element with a timestamp <= w will follow. A row's timestamp is its `t_max`
rounded down, so that `t_max >= (w + 1) * 1000` holds for every later row: that is the operators' watermark.
"""

from __future__ import annotations

from dataclasses import dataclass

from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK

LEAST_MS = -(2**63)
"""The watermark before there is one, and the timestamp of an element that has none."""
LAST_MS = 2**63 - 1
"""The watermark once the input has ended."""


@dataclass(frozen=True, slots=True)
class ElementWatermark:
    """The watermark in force.

    >>> ElementWatermark(4).us, ElementWatermark(LAST_MS).ended
    (5000, True)
    """

    ms: int

    def at_least(self, ms: int) -> ElementWatermark:
        """This one, or an earlier watermark that was greater: the engine forgets its own when it restores a job.

        >>> ElementWatermark(LEAST_MS).at_least(4).us
        5000
        """
        return ElementWatermark(max(self.ms, ms))

    @property
    def ended(self) -> bool:
        """Whether the input has ended."""
        return self.ms == LAST_MS

    @property
    def us(self) -> int:
        """The operator's watermark."""
        if self.ended:
            return END_OF_TIME
        return NO_WATERMARK if self.ms == LEAST_MS else (self.ms + 1) * 1000

    def timer_ms(self, timer_us: int | None) -> int | None:
        """The timer that fires with the first watermark that is at least `timer_us`, and not before the next.

        >>> ElementWatermark(4).timer_ms(9_001), ElementWatermark(4).timer_ms(2_000)
        (9, 5)
        """
        if timer_us is None:
            return None
        return max(-(-timer_us // 1000) - 1, self.ms + 1)


def delay_ms(lateness_us: int) -> int:
    """How many milliseconds the watermark is behind the greatest timestamp: rounded up, as timestamps are rounded down.

    >>> delay_ms(0), delay_ms(1_500), delay_ms(2_000)
    (0, 2, 2)
    """
    return -(-lateness_us // 1000)
