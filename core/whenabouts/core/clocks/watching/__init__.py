"""The live form of what clocks do: rows that say when a clock steps, or when a learned clock no longer fits."""
