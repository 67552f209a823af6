"""The contract between operators and hosts: protocol, event reader, keys, time slots, watermarks."""
