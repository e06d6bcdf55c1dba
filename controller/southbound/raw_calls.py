# SPDX-License-Identifier: Apache-2.0
"""Write and Read calls of P4Runtime with messages as bytes.

finsy's client takes and returns message objects. Serialising and parsing thousands of entries on the
controller's loop would delay answers to agents; the worker process does both.
"""

from __future__ import annotations

import grpc
from finsy.p4client import P4Client, P4ClientError
from finsy.proto import U128, p4r

# Host time for one call. finsy's client has the same limit.
CALL_TIMEOUT_S = 10.0


async def write(client: P4Client, request: bytes, election_id: int) -> None:
    """Send a serialised WriteRequest without an election id.

    Raises:
        P4ClientError: the switch refused an update, or the call failed.
    """
    # Serialised messages that follow one another are merged (protobuf's encoding, "Last One Wins").
    bid = p4r.WriteRequest(election_id=U128.encode(election_id)).SerializeToString()
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = _channel(client).unary_unary(
        "/p4.v1.P4Runtime/Write"
    )
    try:
        await call(request + bid, timeout=CALL_TIMEOUT_S)
    except grpc.RpcError as error:
        raise P4ClientError(error, "WriteRequest") from None


async def read(client: P4Client, request: p4r.ReadRequest) -> tuple[bytes, ...]:
    """The serialised ReadResponses that answer a request. Raises P4ClientError."""
    call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = _channel(client).unary_stream(
        "/p4.v1.P4Runtime/Read"
    )
    replies: list[bytes] = []
    try:
        async for reply in call(request.SerializeToString(), timeout=CALL_TIMEOUT_S):
            replies.append(reply)
    except grpc.RpcError as error:
        raise P4ClientError(error, "ReadRequest") from None
    return tuple(replies)


def _channel(client: P4Client) -> grpc.aio.Channel:
    if client.channel is None:
        raise RuntimeError("the client is not open")
    return client.channel
