"""Shared modules are not collected as tests: some need an engine, or Docker's client."""

collect_ignore_glob = ["*.py"]
