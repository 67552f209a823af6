"""What adapters build on: the host of an operator, identity of queries, out-of-core batches, preflight checks."""
