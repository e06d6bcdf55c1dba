# SPDX-License-Identifier: Apache-2.0
"""The one exception of the servers: a canonical status code and a sentence for the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import grpc
from finsy.proto import p4r, rpc_code, rpc_status

OK = rpc_code.OK
UNKNOWN = rpc_code.UNKNOWN
INVALID_ARGUMENT = rpc_code.INVALID_ARGUMENT
NOT_FOUND = rpc_code.NOT_FOUND
ALREADY_EXISTS = rpc_code.ALREADY_EXISTS
PERMISSION_DENIED = rpc_code.PERMISSION_DENIED
RESOURCE_EXHAUSTED = rpc_code.RESOURCE_EXHAUSTED
FAILED_PRECONDITION = rpc_code.FAILED_PRECONDITION
OUT_OF_RANGE = rpc_code.OUT_OF_RANGE
UNIMPLEMENTED = rpc_code.UNIMPLEMENTED
UNAVAILABLE = rpc_code.UNAVAILABLE

_GRPC_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_DETAILS_KEY = "grpc-status-details-bin"
# An error travels in gRPC's trailing metadata, of which a client takes 8 KiB unless told otherwise; a longer
# one reaches it as RESOURCE_EXHAUSTED and tells nothing. The rest is for keys and gRPC's own trailers.
_DETAILS_BYTES = 7000
_TEXT_BYTES = 1500
_SHORT_MESSAGE = 60
# A message quotes what a client wrote, which may be megabytes. gRPC writes a byte as three at most.
_MESSAGE_BYTES = 2000
# The shortest prefix that an Any may have: one detail per update is to cost little.
_ANY_PREFIX = "/"


class StatusError(Exception):
    """A request that cannot be served. `code` is of google.rpc. The message says what is wrong, where, and
    what is legal. One beyond 2,000 bytes is cut, for it would not reach the client.
    """

    def __init__(self, code: int, message: str) -> None:
        if len(message.encode(errors="replace")) > _MESSAGE_BYTES:
            message = message.encode(errors="replace")[:_MESSAGE_BYTES].decode(errors="ignore") + " ..."
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> StatusError:
    """Make an INVALID_ARGUMENT, the commonest of them."""
    return StatusError(INVALID_ARGUMENT, message)


def abort(context: grpc.ServicerContext, error: StatusError) -> NoReturn:
    """End the RPC with the error's code and message. Never returns."""
    context.abort(_GRPC_CODES[error.code], error.message)
    raise AssertionError("grpc's abort raises")


def batch_status(outcomes: Sequence[StatusError | None], parts: str) -> rpc_status.Status:
    """Make the status of a batch of which some part failed: UNKNOWN, within a client's default limits.

    `parts` says what they are, in the plural. It holds one p4.Error per part, in their order, with messages
    as long as there is room. A batch too long even for codes alone gets no details; the text names the parts
    that failed and their codes.
    """
    failed = sum(1 for outcome in outcomes if outcome is not None)
    text = f"{failed} of {len(outcomes)} {parts} failed"
    for length in (None, _SHORT_MESSAGE, 0):
        status = rpc_status.Status(code=UNKNOWN, message=text)
        for outcome in outcomes:
            detail = p4r.Error(canonical_code=OK)
            if outcome is not None:
                detail = p4r.Error(canonical_code=outcome.code, message=outcome.message[:length])
            status.details.add().Pack(detail, type_url_prefix=_ANY_PREFIX)
        if status.ByteSize() <= _DETAILS_BYTES:
            return status
    return rpc_status.Status(code=UNKNOWN, message=f"{text}: {_listing(outcomes)}")


def _listing(outcomes: Sequence[StatusError | None]) -> str:
    """Name the failed parts by position from 0, runs of one code together, as far as there is room."""
    runs: list[tuple[int, int, str]] = []
    for position, outcome in enumerate(outcomes):
        if outcome is None:
            continue
        name = _GRPC_CODES[outcome.code].name
        if runs and runs[-1][1] == position - 1 and runs[-1][2] == name:
            runs[-1] = (runs[-1][0], position, name)
        else:
            runs.append((position, position, name))
    said = ""
    for number, (first, last, name) in enumerate(runs):
        piece = f"{first} {name}" if first == last else f"{first}-{last} {name}"
        if len(said) + len(piece) > _TEXT_BYTES:
            return f"{said}, and {len(runs) - number} more; make shorter batches for a p4.Error each"
        said += f", {piece}" if said else piece
    first_error = next(outcome for outcome in outcomes if outcome is not None)
    return f"{said}; first: {first_error.message[:200]}; make shorter batches for a p4.Error each"


def abort_batch(
    context: grpc.ServicerContext, outcomes: Sequence[StatusError | None], parts: str
) -> NoReturn:
    """End a Write or a Read of which some part failed, with what `batch_status` says."""
    status = batch_status(outcomes, parts)
    if status.details:
        context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, status.message)
    raise AssertionError("grpc's abort raises")
