"""What clocks do, read off the data: the offset, the drift and the delay between two clocks."""
