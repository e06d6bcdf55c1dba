# SPDX-License-Identifier: Apache-2.0
"""finsy's P4Runtime client with a TCP connection of its own for each session."""

from __future__ import annotations

from collections.abc import Callable

import grpc
from finsy.grpcutil import GRPCArg
from finsy.p4client import P4Client
from finsy.p4schema import P4Schema
from finsy.pbutil import PBMessage
from finsy.proto import p4r_grpc

# The first is finsy's own. By the second a channel does not take over the connection of an earlier one: gRPC
# shares it while any call uses it, and it may be dead without the host knowing, as after a power failure of
# the switch. Then no new session would begin until TCP gives up, a quarter of an hour later.
_OPTIONS = (("grpc.max_metadata_size", 64 * 1024), ("grpc.use_local_subchannel_pool", 1))


class SwitchChannel(P4Client):
    """A `P4Client` whose connection ends with it."""

    async def open(
        self,
        *,
        schema: P4Schema | None = None,
        complete_request: Callable[[PBMessage], None] | None = None,
    ) -> None:
        """Open the channel. It connects at the first message."""
        await super().open(schema=schema, complete_request=complete_request)
        # finsy offers no options of the channel, so its channel, which has not connected yet, is replaced.
        assert self._channel is not None
        await self._channel.close()
        self._channel = self._own_channel()
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)

    def _own_channel(self) -> grpc.aio.Channel:
        tls = self._credentials
        if tls is None:
            return grpc.aio.insecure_channel(self._address, _OPTIONS)
        name = tls.target_name_override
        options = (*_OPTIONS, (GRPCArg.SSL_TARGET_NAME_OVERRIDE_ARG.value, name)) if name else _OPTIONS
        return grpc.aio.secure_channel(self._address, tls.to_client_credentials(), options)
