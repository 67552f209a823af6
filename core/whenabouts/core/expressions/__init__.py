"""Conditions over columns as data: the expression tree, its evaluation, and its SQL form."""
