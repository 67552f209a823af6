"""What users say about when events happened: time specifications, conditions, templates, clocks."""
