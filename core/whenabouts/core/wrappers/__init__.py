"""Queries around queries: payload decoding, deduplication, selection and projection, a limit on state."""
