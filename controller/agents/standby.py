# SPDX-License-Identifier: Apache-2.0
"""The port for agents of a controller that stands by: it refuses each session and says who leads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import grpc

from controller.agents.port import new_server
from controller.wire import agent_pb2 as wire
from controller.wire import agent_pb2_grpc as wire_grpc
from controller.wire.server_tls import ServerTls


class StandbyAgentServer(wire_grpc.AgentHubServicer):
    """Refuses every session with FAILED_PRECONDITION and the words of `why`."""

    def __init__(self, why: Callable[[], str], tls: ServerTls | None) -> None:
        self._why = why
        self._tls = tls
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, port: int) -> str:
        """Listen as `AgentServer.start`. Raises OSError."""
        self._server, taken = new_server(address, port, self._tls)
        wire_grpc.add_AgentHubServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        await self._server.start()
        return taken

    async def stop(self) -> None:
        """Free the port."""
        if self._server is not None:
            await self._server.stop(grace=0)

    async def Session(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[wire.AgentMessage],
        context: grpc.aio.ServicerContext[wire.AgentMessage, wire.ControllerMessage],
    ) -> AsyncIterator[wire.ControllerMessage]:
        """Refuse an agent."""
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._why())
        yield wire.ControllerMessage()
