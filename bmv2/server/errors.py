# SPDX-License-Identifier: Apache-2.0
"""The one exception of the servers: a canonical code and a sentence for the client."""

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

_GRPC_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_DETAILS_KEY = "grpc-status-details-bin"


class StatusError(Exception):
    """A request that cannot be served: `code` of google.rpc, `message` says what, where and what is legal."""

    def __init__(self, code: int, message: str) -> None:
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


def abort_batch(context: grpc.ServicerContext, outcomes: Sequence[StatusError | None]) -> NoReturn:
    """End a Write of which some update failed: UNKNOWN, and one p4.Error per update, in their order."""
    failed = sum(1 for outcome in outcomes if outcome is not None)
    text = f"{failed} of {len(outcomes)} updates failed"
    status = rpc_status.Status(code=UNKNOWN, message=text)
    for outcome in outcomes:
        detail = p4r.Error(canonical_code=OK)
        if outcome is not None:
            detail = p4r.Error(canonical_code=outcome.code, message=outcome.message)
        status.details.add().Pack(detail)
    context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, text)
    raise AssertionError("grpc's abort raises")
