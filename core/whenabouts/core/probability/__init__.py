"""The probability that two uncertain times meet a condition, and bounds that make most evaluations unnecessary."""
