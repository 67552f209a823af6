"""The as-of join: for each left row the right row that prevails at its time, and with what probability."""
