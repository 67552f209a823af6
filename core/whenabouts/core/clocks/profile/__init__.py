"""What a column of times says of itself: unit, granularity, polling, duplicates, gaps, order, steps, zones."""
