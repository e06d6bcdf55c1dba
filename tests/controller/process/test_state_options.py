# SPDX-License-Identifier: Apache-2.0
"""The options for the state: what they mean, and what is refused in one line."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.process.state_options import SharedState, add_state_arguments, state_of
from controller.store.etcd.address import EtcdAddress, EtcdTls
from polyrhythm_files import ConfigError

PEM = b"-----BEGIN CERTIFICATE-----\n"


def read(*options: str, clock: str = "host", fabric: Path = Path("/none/fabric.json")) -> Any:
    parser = argparse.ArgumentParser()
    add_state_arguments(parser)
    args = parser.parse_args(options, argparse.Namespace(fabric=fabric))
    return state_of(args, SimpleNamespace(clock=clock))  # type: ignore[arg-type]


def test_the_state_is_beside_the_description_where_that_can_be_written(tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.json"
    assert read(fabric=fabric) == tmp_path / "fabric.state.sqlite"
    assert read("--state=none", fabric=fabric) is None
    assert read(clock="embedded", fabric=fabric) is None
    assert read(fabric=tmp_path / "none" / "fabric.json") is None
    (tmp_path / "fabric.state.sqlite").touch()
    assert read(fabric=fabric) == tmp_path / "fabric.state.sqlite"


def test_the_state_is_nowhere_in_a_file_or_in_etcd(tmp_path: Path) -> None:
    assert read() is None
    assert read("--state=s.db") == Path("s.db")
    assert read("--state=etcd://a:1,b:2/x") == SharedState(
        EtcdAddress(("a:1", "b:2"), "x"), socket.gethostname()
    )
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_bytes(PEM + name.encode())
    options = [f"--etcd-{name}={tmp_path / name}" for name in ("ca", "cert", "key")]
    found = read("--state=etcd://a:1", "--name=c1", *options)
    assert found.name == "c1"
    assert found.address.tls == EtcdTls(tmp_path / "ca", tmp_path / "cert", tmp_path / "key")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--state=etcd://a"], "--state: 'a' is no member's HOST:PORT; legal: etcd://HOST:PORT"),
        (["--name=c1"], "--name: legal: with --state etcd://"),
        (["--state=s.db", "--etcd-ca=x"], "--etcd-ca: legal: with --state etcd://"),
        (["--state=etcd://a:1", "--etcd-cert=x"], "--etcd-cert, --etcd-key: legal: with --etcd-ca"),
        (["--state=etcd://a:1", "--etcd-ca=x", "--etcd-key=x"], "legal: both or none"),
        (
            ["--state=etcd://a:1", "--etcd-ca=/nowhere"],
            "--etcd-ca /nowhere: No such file or directory; legal",
        ),
        (["--state=etcd://a:1", "--etcd-ca=/dev/null"], "holds no PEM; legal: a PEM file"),
    ],
)
def test_wrong_options_are_refused(options: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(*options)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_embedded_fabric_has_one_controller() -> None:
    with pytest.raises(ConfigError, match="embedded fabric keeps the time for one controller"):
        read("--state=etcd://a:1", clock="embedded")
