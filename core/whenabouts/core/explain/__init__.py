"""Explanations without running a query: why a pair matches or not, and how many pairs are due to chance."""
