# SPDX-License-Identifier: Apache-2.0
"""The agent's gRPC session with the controller. It reconnects by itself; its callbacks only pass messages on.

This is transport on the host's clock. No figure of the fabric depends on it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import grpc

from controller.wire import agent_pb2 as pb
from controller.wire import agent_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 2.0
_READY_TIMEOUT_S = 5.0
# Chosen: a connection in a data centre takes a tenth of it, and agents must find the new leader soon.
_READY_OF_SEVERAL_S = 0.5
_LONGEST_OF_SEVERAL_S = 0.5
_JOIN_TIMEOUT_S = 5.0
# gRPC goes on to watch a connection for 0.2 s after it was told to stop. A channel that is closed meanwhile
# ends gRPC's thread with a traceback. Chosen: a little more.
_WATCH_S = 0.3
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A channel does not take over the connection of an earlier one, which may be dead unnoticed.
    ("grpc.use_local_subchannel_pool", 1),
)


class ControllerSession:
    """A session with the controller that leads, opened again whenever it ends, until `stop`.

    `addresses`: where the controllers are. They are tried in turn; a standby refuses the session with
    FAILED_PRECONDITION.

    The callbacks run on the session's own thread, in this order: `on_connected()` when the controller is
    reachable (the agent then sends Hello), `on_message(message)` for each message, `on_lost()` once for each
    `on_connected`. `rpc_delay_s` delays each message in either direction by that much host time. With
    `keepalive_s` above 0 a silent controller is pinged that often, and the session ends if a ping is not
    answered within the same time. `credentials` is called for each connection; if it returns some, the
    session uses TLS, and `server_name` is the name in the controller's certificate if that is not its
    address. The reason why a controller is unreachable, or refuses, is logged once.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        on_message: Callable[[pb.ControllerMessage], None],
        on_lost: Callable[[], None],
        on_connected: Callable[[], None],
        rpc_delay_s: float = 0.0,
        keepalive_s: float = 0.0,
        credentials: Callable[[], grpc.ChannelCredentials | None] = lambda: None,
        server_name: str = "",
    ) -> None:
        self._addresses = tuple(addresses)
        several = len(self._addresses) > 1
        self._ready_s = _READY_OF_SEVERAL_S if several else _READY_TIMEOUT_S
        self._longest_backoff_s = _LONGEST_OF_SEVERAL_S if several else _LONGEST_BACKOFF_S
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_connected = on_connected
        self._delay_s = rpc_delay_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._outbox: queue.SimpleQueue[pb.AgentMessage | None] | None = None
        self._call: grpc.Call | None = None
        self._sequence = 0
        self._watched_until_s = 0.0
        self._logged: dict[str, str] = {}
        self._options = (*_OPTIONS, *_keepalive(keepalive_s), *_name(server_name))
        self._credentials = credentials
        self._thread = threading.Thread(target=self._run, name=f"session-{self._addresses[0]}", daemon=True)

    def start(self) -> None:
        """Start to connect. Returns at once."""
        self._thread.start()

    def send(self, message: pb.AgentMessage) -> bool:
        """Number a message and queue it. Returns False if there is no session; then the message is
        dropped."""
        with self._lock:
            if self._outbox is None:
                return False
            self._sequence += 1
            message.sequence = self._sequence
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

    def _run(self) -> None:
        backoff = _FIRST_BACKOFF_S
        for turn in itertools.count():
            address = self._addresses[turn % len(self._addresses)]
            with contextlib.closing(self._open(address)) as channel:
                reached = self._reachable(channel)
                if not reached:
                    self._log_why(address, channel)
                elif self._serve(address, channel):
                    backoff = _FIRST_BACKOFF_S
                    self._logged.clear()
                time.sleep(max(0.0, self._watched_until_s - time.monotonic()))
            if self._stopping.is_set():
                return
            # An address that cannot be reached has cost time already; a refusal has not.
            if reached and (turn + 1) % len(self._addresses) == 0:
                if self._stopping.wait(backoff):
                    return
                backoff = min(self._longest_backoff_s, backoff * 2)

    def _open(self, address: str) -> grpc.Channel:
        """A new channel: one that has failed would wait before it tries again."""
        credentials = self._credentials()
        if credentials is None:
            return grpc.insecure_channel(address, options=self._options)
        return grpc.secure_channel(address, credentials, options=self._options)

    def _reachable(self, channel: grpc.Channel) -> bool:
        ready = grpc.channel_ready_future(channel)
        deadline = time.monotonic() + self._ready_s
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
            self._watched_until_s = time.monotonic() + _WATCH_S

    def _log_why(self, address: str, channel: grpc.Channel) -> None:
        """Log why the controller is unreachable: a call that does not wait for the connection fails with the
        reason.
        """
        stub = pb_grpc.AgentHubStub(channel)  # type: ignore[no-untyped-call]
        try:
            next(stub.Session(iter(()), timeout=self._ready_s), None)
        except grpc.RpcError as error:
            # Addresses and times in gRPC's words change from one attempt to the next; the reason is last.
            self._log_once(address, str(error.details()).rpartition("last error: ")[2])

    def _log_once(self, address: str, why: str) -> None:
        if why != self._logged.get(address) and not self._stopping.is_set():
            self._logged[address] = why
            log.warning("no session with %s; flows go by ECMP meanwhile: %s", address, why)

    def _serve(self, address: str, channel: grpc.Channel) -> bool:
        """One session from its first message to its end. Returns whether the controller accepted the agent,
        and did not end with a refusal: of several NICs it may refuse the second."""
        welcome = refused = False
        outbox: queue.SimpleQueue[pb.AgentMessage | None] = queue.SimpleQueue()
        stub = pb_grpc.AgentHubStub(channel)  # type: ignore[no-untyped-call]
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
                refused = message.HasField("refusal")
                welcome = welcome or not refused
                self._on_message(message)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION and not welcome:
                self._log_once(address, str(error.details()))
            elif not self._stopping.is_set():
                why = f"{error.code().name}: {error.details()}"
                log.warning("session with %s ended (%s); another is opened", address, why)
        finally:
            with self._lock:
                self._outbox = self._call = None
            outbox.put(None)
            call.cancel()
            self._on_lost()
        return welcome and not refused

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
        # gRPC waits for the longer of both time-outs, and this one is a minute by default.
        ("grpc.http2.ping_timeout_ms", int(interval_s * 1e3)),
        ("grpc.http2.max_pings_without_data", 0),
    )
