# SPDX-License-Identifier: Apache-2.0
"""Write and Read calls of P4Runtime with messages as bytes.

finsy's client takes and returns message objects. Serialising and parsing thousands of entries on the
controller's loop would delay answers to agents; the worker process does both.

`open_calls` holds the calls of a session while they last. The session cancels them at its end, so that
the next one does not wait for their deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import grpc
from finsy.p4client import P4Client, P4ClientError
from finsy.proto import U128, p4r

OpenCalls = set[grpc.aio.Call]
ANSWER_TIMEOUT_S = 5.0
"""Chosen: host time for the switch to answer the first message of a session."""


class SessionError(Exception):
    """The session with a switch is lost; the message says why. The client connects again."""


async def write(
    client: P4Client, open_calls: OpenCalls, request: bytes, election_id: int, timeout_s: float | None
) -> None:
    """Send a serialised WriteRequest without an election id. `timeout_s` None: wait for ever.

    Raises:
        P4ClientError: the switch refused an update, or the call failed.
        SessionError: the session has cancelled the call.
    """
    # Serialised messages that follow one another are merged (protobuf's encoding, "Last One Wins").
    bid = p4r.WriteRequest(election_id=U128.encode(election_id)).SerializeToString()
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = _channel(client).unary_unary(
        "/p4.v1.P4Runtime/Write"
    )
    call = method(request + bid, timeout=timeout_s)
    with _open(call, open_calls, "WriteRequest"):
        await call


async def read(
    client: P4Client, open_calls: OpenCalls, request: p4r.ReadRequest, timeout_s: float | None
) -> tuple[bytes, ...]:
    """The serialised ReadResponses that answer a request. `timeout_s` None: wait for ever.

    Raises P4ClientError and SessionError, as `write` does.
    """
    method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = _channel(client).unary_stream(
        "/p4.v1.P4Runtime/Read"
    )
    call = method(request.SerializeToString(), timeout=timeout_s)
    with _open(call, open_calls, "ReadRequest"):
        return tuple([reply async for reply in call])


@contextlib.contextmanager
def _open(call: grpc.aio.Call, open_calls: OpenCalls, kind: str) -> Iterator[None]:
    open_calls.add(call)
    try:
        yield
    except grpc.RpcError as error:
        raise P4ClientError(error, kind) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not call.cancelled() or (task is not None and task.cancelling()):
            raise
        raise SessionError("the session has ended") from None
    finally:
        open_calls.discard(call)


def _channel(client: P4Client) -> grpc.aio.Channel:
    if client.channel is None:
        raise RuntimeError("the client is not open")
    return client.channel


def reason(error: Exception) -> str:
    """Why a session was lost, in words, by the error that ended it."""
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_TIMEOUT_S:g} s"
    if isinstance(error, P4ClientError):
        return f"{error.code.name}: {error.message}"
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
