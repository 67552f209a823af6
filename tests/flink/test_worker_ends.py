"""Workers do not report the end of a job as a failure, but they do report any other end of their data."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from whenabouts.flink_plugin.worker_ends import let_workers_end


@contextmanager
def _served(code: grpc.StatusCode, details: str, ends: threading.Event) -> Iterator[Any]:
    """A worker's channel to a JVM that ends the stream of data with `code`, once `ends` is set."""
    from apache_beam.portability.api import beam_fn_api_pb2_grpc as beam  # here: Flink has loaded it, warnings and all
    from apache_beam.runners.worker.data_plane import GrpcClientDataChannel

    class Jvm(beam.BeamFnDataServicer):
        def Data(self, elements: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802  # Beam's name
            ends.wait(30)
            context.abort(code, details)
            yield

    server = grpc.server(ThreadPoolExecutor(2))
    beam.add_BeamFnDataServicer_to_server(Jvm(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    with grpc.insecure_channel(f"localhost:{port}") as line:
        channel = GrpcClientDataChannel(beam.BeamFnDataStub(line))
        yield channel
        channel.close()
    server.stop(None).wait()


def _failures(monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode, details: str) -> list[BaseException]:
    """Errors of the channel's reader, which the interpreter would print."""
    failed: list[BaseException] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: failed.append(args.exc_value))
    let_workers_end()
    ends = threading.Event()  # not before its reader is found: a reader that has ended is no longer listed
    before = set(threading.enumerate())  # readers of earlier jobs may still be there
    with _served(code, details, ends) as channel:
        started = set(threading.enumerate()) - before
        (reader,) = (thread for thread in started if thread.name == "read_grpc_client_inputs")
        ends.set()
        reader.join(30)
        assert not reader.is_alive()
        with pytest.raises((RuntimeError, grpc.RpcError)):  # a bundle that waits for data does not wait forever
            list(channel.input_elements("bundle", ["source"]))
    return failed


def test_hanging_up_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _failures(monkeypatch, grpc.StatusCode.CANCELLED, "Multiplexer hanging up") == []


@pytest.mark.parametrize(
    ("code", "details"),
    [(grpc.StatusCode.UNAVAILABLE, "Multiplexer hanging up"), (grpc.StatusCode.CANCELLED, "cancelled by the server")],
)
def test_any_other_end_is_a_failure(monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode, details: str) -> None:
    (error,) = _failures(monkeypatch, code, details)
    assert isinstance(error, grpc.RpcError)
    assert error.code() is code


def test_state_that_is_closed_fails_whoever_waits_for_it_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
    from apache_beam.runners.worker.sdk_worker import GrpcStateHandler

    class Jvm(beam_fn_api_pb2_grpc.BeamFnStateServicer):
        def State(self, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802  # Beam's name
            ends.wait(30)
            context.abort(grpc.StatusCode.CANCELLED, "the task has ended")
            yield

    failed: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: failed.append(args.exc_value))
    let_workers_end()
    ends, server = threading.Event(), grpc.server(ThreadPoolExecutor(2))
    beam_fn_api_pb2_grpc.add_BeamFnStateServicer_to_server(Jvm(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    with grpc.insecure_channel(f"localhost:{port}") as line:
        before = set(threading.enumerate())
        handler = GrpcStateHandler(beam_fn_api_pb2_grpc.BeamFnStateStub(line))
        (reader,) = (thread for thread in set(threading.enumerate()) - before if thread.name == "read_state")
        ends.set()
        reader.join(30)
        assert not reader.is_alive()
        assert failed == []
        with pytest.raises(grpc.RpcError, match="the task has ended"), handler.process_instruction_id("bundle"):
            handler.get_raw(beam_fn_api_pb2.StateKey())
        handler.done()
    server.stop(None).wait()
