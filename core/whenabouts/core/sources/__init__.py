"""Files as streams: reading, parsing of written times, replay."""
