"""Answers without a run: why a pair matches or not, and how many pairs are due to chance."""
