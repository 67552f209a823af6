"""What tests share is not itself collected: parts of it need an engine, or Docker's client."""

collect_ignore_glob = ["*.py"]
