"""Temporal aggregates and joins over coalesced tuples (Al-Kateb 2010, Examples 1 and 2)."""
