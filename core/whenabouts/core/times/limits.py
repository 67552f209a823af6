"""The limits of times and of differences between them, in microseconds: all are int64."""

NEVER_US = -(2**63)
"""Before every time. As a lower bound it excludes nothing; as a watermark it means that there is none yet."""

ALWAYS_US = 2**63 - 1
"""After every time. As an upper bound it excludes nothing; as a watermark it means that the input has ended."""

UNBOUNDED_US = 2**62
"""A missing end of a window on the difference of two times: `lo = -UNBOUNDED_US` or `hi = UNBOUNDED_US`."""

FARTHEST_US = 2**59
"""Times must lie in `[-FARTHEST_US, FARTHEST_US]` (18,000 years around 1970), so that no kernel overflows int64."""
