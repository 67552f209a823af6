"""What clocks do, read off the data: the profile of a column; offset, drift and delay between two clocks."""
