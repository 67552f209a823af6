"""Workers of local jobs end without a word where their job has succeeded.

Flink runs the Python of a local job in the client's own process. When a task ends, the JVM closes the stream of control
and, right after it, that of data. Beam's worker closes its data channel once it has seen the end of control; where the
process is busy, the JVM is faster. The channel's reader then takes the end of a job for a failure, and prints a
traceback ("Multiplexer hanging up") after a job that has succeeded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_HUNG_UP = "Multiplexer hanging up"
"""What the JVM says when it closes the stream of data by itself; never where that stream has failed."""


def let_workers_end() -> None:
    """Have the data channels of this process take the JVM's hanging up for the end of their input.

    A bundle that still waits for data fails as before ("Channel closed prematurely"). Nothing to do in a client whose
    workers are elsewhere: it never loads them.
    """
    plane = sys.modules.get("apache_beam.runners.worker.data_plane")
    if plane is None:
        return
    channel = plane.GrpcClientDataChannel
    if "set_inputs" in vars(channel):  # it inherits the method, until it is given one here
        return
    inherited = channel.set_inputs

    def set_inputs(self: Any, elements: Any) -> None:
        inherited(self, _until_hung_up(elements))

    channel.set_inputs = set_inputs


def _until_hung_up(elements: Any) -> Iterator[Any]:
    grpc: Any = sys.modules["grpc"]  # Beam's, and there where Beam is
    try:
        yield from elements
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.CANCELLED or error.details() != _HUNG_UP:
            raise
