# SPDX-License-Identifier: Apache-2.0
"""Calls to etcd: each goes to one member after another, within a deadline, until one has answered.

The messages and stubs are those of the library aetcd. Its client class is not used: it knows neither TLS nor
more than one member, and it needs an asyncio loop, but a busy loop must not delay the renewal of a lease.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from aetcd import rpc

from controller.store.etcd.address import EtcdAddress
from polyrhythm_files.renewal import FromFiles

# Chosen, in seconds: a member that has not answered by then is left for the next one. An fsync of a busy disk
# takes a tenth of it.
MEMBER_S = 1.0
# A member that knows no leader of the cluster must say so at once instead of keeping the call.
_METADATA = (("hasleader", "true"),)
# After these answers no other member does better. While it elects a leader of its own, etcd answers others,
# UNKNOWN among them.
_FINAL = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
)
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also the time for a connection to be made, which a busy machine needs.
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # etcd's own limit of a request is 1.5 MiB, but a range may be longer.
    ("grpc.max_receive_message_length", -1),
)


class EtcdError(Exception):
    """etcd has not done what it was asked for; the message is one line and says why.

    `unreachable`: no member has answered, so whether the call took effect is unknown.
    """

    def __init__(self, message: str, *, unreachable: bool) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class _Member:
    """The connection to a member, and what can be called there."""

    def __init__(self, member: str, credentials: grpc.ChannelCredentials | None) -> None:
        if credentials is None:
            self._channel = grpc.insecure_channel(member, _OPTIONS)
        else:
            self._channel = grpc.secure_channel(member, credentials, _OPTIONS)
        self.kv = rpc.KVStub(self._channel)
        self.lease = rpc.LeaseStub(self._channel)
        self.close = self._channel.close


class Etcd:
    """The members of a cluster. Thread-safe; no call waits longer than its deadline.

    When the files of its certificates change, it connects again. Raises OSError if they cannot be read.
    """

    def __init__(self, address: EtcdAddress) -> None:
        self.address = address
        files = () if address.tls is None else address.tls.files
        self._members = FromFiles(files, lambda: _connected(address))
        self._lock = threading.Lock()
        self._first = 0

    def close(self) -> None:
        """Close the connections."""
        for member in self._members.get():
            member.close()

    def range(self, request: Any, timeout_s: float) -> Any:
        """Read keys. Raises EtcdError."""
        return self._call(lambda member, limit: self._unary(member.kv.Range, request, limit), timeout_s)

    def txn(self, request: Any, timeout_s: float) -> Any:
        """Commit a transaction. Raises EtcdError.

        It may be sent more than once, so it must do no harm a second time.
        """
        return self._call(lambda member, limit: self._unary(member.kv.Txn, request, limit), timeout_s)

    def grant(self, ttl_s: int, timeout_s: float) -> int:
        """A new lease of `ttl_s` seconds; returns its id. Raises EtcdError."""
        request = rpc.LeaseGrantRequest(TTL=ttl_s)
        reply = self._call(
            lambda member, limit: self._unary(member.lease.LeaseGrant, request, limit), timeout_s
        )
        return int(reply.ID)

    def renew(self, lease: int, timeout_s: float) -> bool:
        """Renew a lease; False if it has expired. Raises EtcdError."""
        request = rpc.LeaseKeepAliveRequest(ID=lease)

        def call(member: _Member, limit: float) -> Any:
            stream = member.lease.LeaseKeepAlive(_one(request), timeout=limit, metadata=_METADATA)
            try:
                return next(iter(stream))
            finally:
                stream.cancel()

        return bool(self._call(call, timeout_s).TTL > 0)

    def revoke(self, lease: int, timeout_s: float) -> None:
        """End a lease, and with it its keys. Raises EtcdError."""
        request = rpc.LeaseRevokeRequest(ID=lease)
        self._call(lambda member, limit: self._unary(member.lease.LeaseRevoke, request, limit), timeout_s)

    @staticmethod
    def _unary(method: Callable[..., Any], request: Any, limit: float) -> Any:
        return method(request, timeout=limit, metadata=_METADATA)

    def _call(self, call: Callable[[_Member, float], Any], timeout_s: float) -> Any:
        """The answer of the first member that gives one, beginning with the one that gave the last."""
        deadline = time.monotonic() + timeout_s
        members = self._members.get()
        with self._lock:
            first = self._first
        count, why, turn = len(members), "no time was left", 0
        while (left := deadline - time.monotonic()) > 0 and turn < count:
            member = (first + turn) % count
            turn += 1
            try:
                answer = call(members[member], left if count == 1 else min(left, MEMBER_S))
            except grpc.RpcError as error:
                why = _reason(error)
                if error.code() in _FINAL:
                    raise EtcdError(f"{self.address} refuses: {why}", unreachable=False) from None
                continue
            except StopIteration:
                why = "a member ended the call without an answer"
                continue
            with self._lock:
                self._first = member
            return answer
        raise EtcdError(f"{self.address} does not answer: {why}", unreachable=True)


def _connected(address: EtcdAddress) -> tuple[_Member, ...]:
    """Connections to all members. Raises OSError if the certificates cannot be read."""
    credentials = None
    if (tls := address.tls) is not None:
        own = tuple(path.read_bytes() for path in (tls.key, tls.cert) if path is not None)
        credentials = grpc.ssl_channel_credentials(tls.ca.read_bytes(), *own)
    return tuple(_Member(member, credentials) for member in address.members)


def _one(request: Any) -> Iterator[Any]:
    yield request


def _reason(error: grpc.RpcError) -> str:
    """The last words of gRPC's reason: what comes before has addresses and times that change."""
    return f"{error.code().name}: {str(error.details()).rpartition('last error: ')[2]}"
