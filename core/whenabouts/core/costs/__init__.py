"""What `auto` compares: prices of operations, choices, and the eager and lazy cost of coalescing."""
