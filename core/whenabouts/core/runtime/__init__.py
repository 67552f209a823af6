"""The contract between operators and hosts: protocol, event reader, blocks, keys, time slots, watermarks, rejects."""
