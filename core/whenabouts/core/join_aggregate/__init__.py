"""Join aggregates: for each left row, how many right rows meet a timing condition, and what they add up to."""
