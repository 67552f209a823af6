"""What `auto` weighs: prices of operations, choices, and the eager and lazy cost of coalescing."""
