"""The probability that two uncertain times meet a condition, and the bounds that spare its evaluation."""
