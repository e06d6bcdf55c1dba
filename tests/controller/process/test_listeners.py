# SPDX-License-Identifier: Apache-2.0
"""Which addresses the controller serves: loopback, or others with certificates and tokens."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.northbound.tokens import Role
from controller.process.config import load_fabric
from controller.process.listeners import (
    Listeners,
    add_listener_arguments,
    check_targets,
    is_local,
    listeners_of,
)
from polyrhythm_files import ConfigError
from topo.generate import leaf_spine
from topo.jsonio import topology_to_json


def listeners(*options: str) -> Listeners:
    parser = argparse.ArgumentParser()
    add_listener_arguments(parser)
    return listeners_of(parser.parse_args(options))


def description(path: Path, address: str) -> Path:
    topology = leaf_spine(1, 1, 2, host_bps=10**9, fabric_bps=10**9)
    value: dict[str, Any] = {
        "name": "x", "clock": "host", "control_delay_ns": 0, "topology": topology_to_json(topology),
        "switches": {s.name: {"address": address, "device_id": s.device_id} for s in topology.switches},
        "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
    }  # fmt: skip
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True), ("127.9.9.9:50051", True), ("::1", True), ("[::1]:9559", True), ("localhost", True),
        ("localhost:1", True), ("unix:/run/x.sock", True), ("0.0.0.0", False), ("::", False), ("[::]:80", False),
        ("10.0.0.1", False), ("10.0.0.1:9559", False), ("leaf1:9559", False), ("localhost.example", False),
        ("", False), ("127.0.0.1.example:9559", False),
    ],
)  # fmt: skip
def test_what_other_hosts_cannot_reach(address: str, local: bool) -> None:
    assert is_local(address) is local


@pytest.mark.parametrize(
    ("options", "legal"),
    [
        (["--agents-address=0.0.0.0"], "with --agents-cert, --agents-key and --agents-client-ca"),
        (["--agents-address=10.1.2.3"], "or with --insecure"),
        (["--web-address=0.0.0.0"], "with --web-cert, --web-key and --web-tokens, or with --insecure"),
        (["--web-address=::"], "--insecure"),
    ],
)
def test_another_address_is_refused_without_certificates(options: list[str], legal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listeners(*options)
    assert legal in str(caught.value)
    assert options[0].partition("=")[2] in str(caught.value)
    given = listeners(*options, "--insecure")
    # Nobody who is not known changes anything from elsewhere.
    assert given.access.without_tokens == (Role.OPERATE if "agents" in options[0] else Role.READ)


def test_certificates_without_tokens_do_not_publish_the_rest_api(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    options = [f"--web-cert={tmp_path}/c.pem", f"--web-key={tmp_path}/c.key", "--web-address=0.0.0.0"]
    with pytest.raises(ConfigError, match="--web-tokens"):
        listeners(*options)
    (tmp_path / "tokens.json").write_text('{"tokens": []}')
    served = listeners(*options, f"--web-tokens={tmp_path}/tokens.json")
    assert served.web_tls is not None
    assert served.access.tokens is not None


def test_switches_on_other_hosts_need_tls(tmp_path: Path) -> None:
    file = description(tmp_path / "fabric.json", "10.0.0.9:9559")
    with pytest.raises(ConfigError, match=r"switches.leaf1.address: 10.0.0.9:9559 is on another host"):
        check_targets(file, load_fabric(file), listeners())
    check_targets(file, load_fabric(file), listeners("--insecure"))
    file = description(tmp_path / "local.json", "unix:/run/leaf.sock")
    check_targets(file, load_fabric(file), listeners())


def test_the_controller_ends_with_2_and_one_line(tmp_path: Path) -> None:
    file = description(tmp_path / "fabric.json", "127.0.0.1:1")
    done = subprocess.run(
        [sys.executable, "-m", "polyrhythm", "controller", f"--fabric={file}", "--web-address=0.0.0.0"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(
        "polyrhythm controller: --web-address 0.0.0.0: other hosts reach this address"
    )


def make_certificate(folder: Path) -> None:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "c")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(1)).sign(
        key, hashes.SHA256()
    )
    (folder / "c.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "c.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
