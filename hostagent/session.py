# SPDX-License-Identifier: Apache-2.0
"""The agent's gRPC session with the controller. It reconnects by itself; its callbacks only pass messages on.

This is transport on the host's clock. No figure of the fabric depends on it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator

import grpc

from controller.wire import agent_pb2 as pb
from controller.wire import agent_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 2.0
_READY_TIMEOUT_S = 5.0
_JOIN_TIMEOUT_S = 5.0
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class ControllerSession:
    """A session that is opened again whenever it ends, until `stop`.

    The callbacks run on the session's own thread, in this order: `on_connected()` when the controller is
    reachable (the agent then sends Hello), `on_message(message)` for each message, `on_lost()` once for each
    `on_connected`. `rpc_delay_s` delays each message in either direction by that much host time. With
    `keepalive_s` above 0 a silent controller is pinged that often, and the session ends if a ping is not
    answered within the same time. With `credentials` the session uses TLS; `server_name` is the name in the
    controller's certificate if that is not its address. The reason why the controller is unreachable is
    logged once.
    """

    def __init__(
        self,
        address: str,
        on_message: Callable[[pb.ControllerMessage], None],
        on_lost: Callable[[], None],
        on_connected: Callable[[], None],
        rpc_delay_s: float = 0.0,
        keepalive_s: float = 0.0,
        credentials: grpc.ChannelCredentials | None = None,
        server_name: str = "",
    ) -> None:
        self.address = address
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_connected = on_connected
        self._delay_s = rpc_delay_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._outbox: queue.SimpleQueue[pb.AgentMessage | None] | None = None
        self._call: grpc.Call | None = None
        self._logged = ""
        options = (*_OPTIONS, *_keepalive(keepalive_s), *_name(server_name))
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=options)
        self._thread = threading.Thread(target=self._run, name=f"session-{address}", daemon=True)

    def start(self) -> None:
        """Start to connect. Returns at once."""
        self._thread.start()

    def send(self, message: pb.AgentMessage) -> bool:
        """Queue a message. Returns False if there is no session; then the message is dropped."""
        with self._lock:
            if self._outbox is None:
                return False
            self._outbox.put(message)
            return True

    def drop(self) -> None:
        """End the present session, if there is one. A new one is opened as after any other loss."""
        with self._lock:
            call = self._call
        if call is not None:
            call.cancel()

    def stop(self) -> None:
        """End the session and wait for its thread. Queued messages are sent if the controller still reads."""
        self._stopping.set()
        with self._lock:
            if self._outbox is not None:
                self._outbox.put(None)
            call = self._call
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(1.0 + 2 * self._delay_s)
            if self._thread.is_alive() and call is not None:
                call.cancel()
            self._thread.join(_JOIN_TIMEOUT_S)
        self._channel.close()

    def _run(self) -> None:
        backoff = _FIRST_BACKOFF_S
        while not self._stopping.is_set():
            if not self._reachable():
                # The channel itself goes on trying to connect.
                self._log_why()
                continue
            if self._serve():
                backoff = _FIRST_BACKOFF_S
                self._logged = ""
            if self._stopping.wait(backoff):
                return
            backoff = min(_LONGEST_BACKOFF_S, backoff * 2)

    def _reachable(self) -> bool:
        ready = grpc.channel_ready_future(self._channel)
        deadline = time.monotonic() + _READY_TIMEOUT_S
        try:
            while not self._stopping.is_set() and time.monotonic() < deadline:
                try:
                    ready.result(timeout=0.1)
                except grpc.FutureTimeoutError:
                    continue
                return True
            return False
        finally:
            ready.cancel()

    def _log_why(self) -> None:
        """Log why the controller is unreachable: a call that does not wait for the connection fails with the
        reason.
        """
        stub = pb_grpc.AgentHubStub(self._channel)  # type: ignore[no-untyped-call]
        try:
            next(stub.Session(iter(()), timeout=_READY_TIMEOUT_S), None)
        except grpc.RpcError as error:
            # Addresses and times in gRPC's words change from one attempt to the next; the reason is last.
            why = str(error.details()).rpartition("last error: ")[2]
            if why != self._logged and not self._stopping.is_set():
                self._logged = why
                log.warning("no session with %s; flows go by ECMP meanwhile: %s", self.address, why)

    def _serve(self) -> bool:
        """One session from its first message to its end. Returns whether the controller accepted the
        agent."""
        welcome = False
        outbox: queue.SimpleQueue[pb.AgentMessage | None] = queue.SimpleQueue()
        stub = pb_grpc.AgentHubStub(self._channel)  # type: ignore[no-untyped-call]
        call = stub.Session(self._outgoing(outbox))
        with self._lock:
            self._outbox, self._call = outbox, call
        self._on_connected()
        if self._stopping.is_set():
            outbox.put(None)
        try:
            for message in call:
                if self._delay_s:
                    time.sleep(self._delay_s)
                welcome = welcome or not message.HasField("refusal")
                self._on_message(message)
        except grpc.RpcError as error:
            if not self._stopping.is_set():
                log.warning("session with %s ended: %s", self.address, error)
        finally:
            with self._lock:
                self._outbox = self._call = None
            outbox.put(None)
            call.cancel()
            self._on_lost()
        return welcome

    def _outgoing(self, outbox: queue.SimpleQueue[pb.AgentMessage | None]) -> Iterator[pb.AgentMessage]:
        while (message := outbox.get()) is not None:
            if self._delay_s:
                time.sleep(self._delay_s)
            yield message


def _name(server_name: str) -> tuple[tuple[str, str], ...]:
    return (("grpc.ssl_target_name_override", server_name),) if server_name else ()


def _keepalive(interval_s: float) -> tuple[tuple[str, int], ...]:
    if not interval_s:
        return ()
    return (
        ("grpc.keepalive_time_ms", int(interval_s * 1e3)),
        ("grpc.keepalive_timeout_ms", int(interval_s * 1e3)),
        ("grpc.http2.max_pings_without_data", 0),
    )
