"""Dataframes of other libraries: read as Arrow tables, and made of them."""
