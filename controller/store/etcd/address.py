# SPDX-License-Identifier: Apache-2.0
"""Where etcd is, as `--state` says it: etcd://HOST:PORT,HOST:PORT/PREFIX?epoch=N."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

SCHEME = "etcd://"
DEFAULT_PREFIX = "polyrhythm"
_LEGAL = "legal: etcd://HOST:PORT[,HOST:PORT...][/PREFIX][?epoch=N]"


class AddressOfEtcdError(ValueError):
    """The text is no address of etcd; the message says what is wrong and what would be legal."""


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """The PEM files for the connections to etcd. `cert` and `key` None: no certificate is shown."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files."""
        return tuple(path for path in (self.ca, self.cert, self.key) if path is not None)


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """The members of an etcd cluster, and the keys there that belong to one fabric.

    Every key begins with `prefix`. `epoch`: from 1 on; raise it when etcd has lost its history, so that the
    election ids stay above all that switches have seen. `tls` None: no encryption.
    """

    members: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    epoch: int = 1
    tls: EtcdTls | None = None

    def key(self, *parts: str) -> bytes:
        """The key of these parts under the prefix."""
        return "/".join((self.prefix, *parts)).encode()

    def __str__(self) -> str:
        return f"{SCHEME}{','.join(self.members)}/{self.prefix}"


def parse_address(text: str, tls: EtcdTls | None = None) -> EtcdAddress:
    """Read an address.

    Raises:
        AddressOfEtcdError: it is none.
    """
    parts = urlsplit(text)
    if not text.startswith(SCHEME) or parts.fragment:
        raise AddressOfEtcdError(f"{text!r} is wrong; {_LEGAL}")
    members = tuple(parts.netloc.split(","))
    for member in members:
        host, _, port = member.rpartition(":")
        if "@" in member or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise AddressOfEtcdError(f"{member!r} is no member's HOST:PORT; {_LEGAL}")
    if len(set(members)) < len(members):
        raise AddressOfEtcdError(f"{text!r} names a member twice; {_LEGAL}")
    options = parse_qsl(parts.query, keep_blank_values=True)
    epoch = 1
    for name, value in options:
        if name != "epoch" or len(options) > 1 or not value.isdecimal() or not 0 < int(value) < 1 << 32:
            raise AddressOfEtcdError(f"{name}={value} is wrong; legal: epoch=N, N from 1 to 2^32 - 1")
        epoch = int(value)
    return EtcdAddress(members, parts.path.strip("/") or DEFAULT_PREFIX, epoch, tls)
