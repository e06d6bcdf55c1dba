# SPDX-License-Identifier: Apache-2.0
"""Real etcd servers on loopback: one, or a cluster of several members."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from control_rig import PATIENCE_S, eventually

from controller.store.etcd.address import EtcdAddress, EtcdTls
from controller.store.etcd.members import Etcd, EtcdError

MISSING = "etcd is not installed (Debian's package etcd-server)"
needs_etcd = pytest.mark.skipif(shutil.which("etcd") is None, reason=MISSING)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class Member:
    """One etcd server. It can be killed and started again on its data."""

    name: str
    folder: Path
    client: str
    peer: str
    options: list[str] = field(default_factory=list)
    scheme: str = "http"
    process: subprocess.Popen[bytes] | None = None

    def start(self, cluster: str) -> None:
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    "etcd",
                    f"--name={self.name}",
                    f"--data-dir={self.folder / 'data'}",
                    f"--listen-client-urls={self.scheme}://{self.client}",
                    f"--advertise-client-urls={self.scheme}://{self.client}",
                    f"--listen-peer-urls=http://{self.peer}",
                    f"--initial-advertise-peer-urls=http://{self.peer}",
                    f"--initial-cluster={cluster}",
                    "--logger=zap",
                    "--log-level=warn",
                    *self.options,
                ],
                stdout=log,
                stderr=log,
            )

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
            self.process.wait(PATIENCE_S)
            self.process = None


class Cluster:
    """A running cluster of etcd on loopback."""

    def __init__(
        self, folder: Path, count: int = 1, *, options: list[str] | None = None, tls: EtcdTls | None = None
    ) -> None:
        self._tls = tls
        self.members = [
            Member(
                f"m{i}",
                folder / f"etcd{i}",
                f"127.0.0.1:{free_port()}",
                f"127.0.0.1:{free_port()}",
                options or [],
                "http" if tls is None else "https",
            )
            for i in range(count)
        ]
        self._cluster = ",".join(f"{m.name}=http://{m.peer}" for m in self.members)
        self.start()

    def start(self) -> None:
        """Start the members that do not run, and wait until they serve."""
        for member in self.members:
            if member.process is None:
                member.start(self._cluster)
        eventually(self._serves, "etcd serves")

    def end(self, number: int = signal.SIGTERM) -> None:
        for member in self.members:
            member.end(number)

    def address(self, prefix: str = "polyrhythm") -> EtcdAddress:
        return EtcdAddress(tuple(m.client for m in self.members), prefix, tls=self._tls)

    def _serves(self) -> bool:
        """Whether each member serves: one alone may still be coming up while the others do."""
        for member in self.members:
            etcd = Etcd(EtcdAddress((member.client,), tls=self._tls))
            try:
                etcd.revoke(etcd.grant(1, 2.0), 2.0)
            except EtcdError:
                return False
            finally:
                etcd.close()
        return True


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A single etcd server for the tests of a module, each of which takes a prefix of its own."""
    running = Cluster(tmp_path_factory.mktemp("etcd"))
    yield running
    running.end(signal.SIGKILL)
