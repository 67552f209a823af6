"""How users describe when events happened: time specifications, conditions, templates, clocks."""
