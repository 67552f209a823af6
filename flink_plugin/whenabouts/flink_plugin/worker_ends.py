"""Workers of local jobs end without a traceback if their job has succeeded.

Flink runs the Python of a local job in the client's own process. When a task ends, the JVM closes the streams of
control, data and state. Beam's worker closes its channels once it has seen the end of control; if the process is busy,
the JVM is faster. The channels' readers then treat the end of a job as a failure, and print tracebacks ("Multiplexer
hanging up", "Exception in thread read_state") after a job that has succeeded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

_HUNG_UP = "Multiplexer hanging up"
"""The JVM's message when it closes the stream of data by itself; never the one of a stream that has failed."""


def let_workers_end() -> None:
    """Make the channels of this process treat the JVM's hanging up as the end of their input.

    A bundle that still waits for data or state fails as before. Does nothing in a client whose workers are elsewhere:
    it never loads them.
    """
    plane, worker = (sys.modules.get(f"apache_beam.runners.worker.{name}") for name in ("data_plane", "sdk_worker"))
    if plane is not None:
        _let_data_end(plane.GrpcClientDataChannel)
    if worker is not None:
        _let_state_end(worker.GrpcStateHandler)


def _let_data_end(channel: Any) -> None:
    if "set_inputs" in vars(channel):  # it inherits the method, until it is given one here
        return
    inherited = channel.set_inputs

    def set_inputs(self: Any, elements: Any) -> None:
        inherited(self, _until_hung_up(elements))

    channel.set_inputs = set_inputs


def _until_hung_up(elements: Any) -> Iterator[Any]:
    grpc: Any = sys.modules["grpc"]  # Beam's, and loaded if Beam is
    try:
        yield from elements
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.CANCELLED or error.details() != _HUNG_UP:
            raise


def _let_state_end(handler: Any) -> None:
    start = handler.start
    if hasattr(start, "quiet"):
        return

    def quiet_start(self: Any) -> None:
        stub = self._state_stub
        self._state_stub = SimpleNamespace(State=lambda requests: _until_closed(self, stub.State(requests)))
        try:
            start(self)
        finally:
            self._state_stub = stub

    quiet_start.quiet = True  # type: ignore[attr-defined]
    handler.start = quiet_start


def _until_closed(handler: Any, responses: Any) -> Iterator[Any]:
    """The responses; an error is passed to a caller that waits for one. Without such a caller nothing is lost with the
    stream."""
    grpc: Any = sys.modules["grpc"]
    try:
        yield from responses
    except grpc.RpcError as error:
        handler._exception = error
