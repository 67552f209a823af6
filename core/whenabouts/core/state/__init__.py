"""The bytes of a bucket: segments, their codec, the in-memory store, and the cache of windows."""
