"""Event time of engines that work in micro-batches (Spark): milliseconds, inclusive, 0 while nothing is known.

Rows at the watermark itself are late to the engine. Its watermark is 0 before any data and also while times lie before
1970, so 0 means to the operators that nothing is known yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from whenabouts.core.runtime.protocol import NO_WATERMARK


@dataclass(frozen=True, slots=True)
class MicroBatchWatermark:
    """The watermark of a micro-batch.

    >>> MicroBatchWatermark(4).us, MicroBatchWatermark(0).us == NO_WATERMARK
    (5000, True)
    """

    ms: int

    @property
    def us(self) -> int:
        """The operators' watermark, exclusive and in microseconds; `NO_WATERMARK` while the engine knows nothing.

        `delay_ms` puts the engine's watermark one millisecond back, so that this one is true: a row that is not late
        lies after the engine's watermark, and so does everything computed from it (or the engine would drop it further
        down the plan).
        """
        return (self.ms + 1) * 1000 if self.ms > 0 else NO_WATERMARK

    def timer_ms(self, timer_us: int | None) -> int | None:
        """The engine's timer for the least watermark `timer_us`; what is due already fires with the next watermark.

        The engine fires a timer once its watermark is past it: `ms > timer` is `(ms + 1) * 1000 >= (timer + 2) * 1000`.

        >>> MicroBatchWatermark(4).timer_ms(9_001), MicroBatchWatermark(4).timer_ms(2_000)
        (8, 4)
        """
        return None if timer_us is None else max(-(-timer_us // 1000) - 2, self.ms, 0)


def delay_ms(lateness_us: int) -> int:
    """The engine's watermark delay for a lateness: rounded up, as the engine rounds times down, and one more (see
    `MicroBatchWatermark.us`).

    >>> delay_ms(0), delay_ms(1_500), delay_ms(2_000)
    (1, 3, 3)
    """
    return -(-lateness_us // 1000) + 1
