"""Checks that a message broker answers before an engine tries: engines try for minutes, then report a timeout."""

from __future__ import annotations

import socket
import time

from whenabouts.core.durations import Duration, parse_non_negative
from whenabouts.core.errors import Code, EngineError


def require_broker(brokers: str, wait: Duration = "10 s") -> None:
    """Return once one of the brokers accepts a connection.

    `brokers`: `host:port`, several with commas between them. Raises EngineError WA-3041 if after `wait` none has.

    >>> require_broker("localhost:1", wait="0 s")
    Traceback (most recent call last):
    whenabouts.core.errors.EngineError: WA-3041: no broker answers at localhost:1 (hint: start it, or give its host \
and port as they are seen from here; a longer wait= waits for one)
    """
    deadline = time.monotonic() + parse_non_negative(wait, name="wait") / 1e6
    while not any(_answers(each.strip()) for each in brokers.split(",")):
        if time.monotonic() >= deadline:
            raise EngineError(
                Code.NO_BROKER,
                f"no broker answers at {brokers}",
                "start it, or give its host and port as they are seen from here; a longer wait= waits for one",
            )
        time.sleep(0.2)


def _answers(broker: str) -> bool:
    host, _, port = broker.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except (OSError, ValueError):
        return False
    return True
