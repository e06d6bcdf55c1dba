# SPDX-License-Identifier: Apache-2.0
"""A controller with certificates of `polyrhythm pki` on all its ports, and with tokens: who gets in, and who not."""

from __future__ import annotations

import contextlib
import io
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
from control_rig import (
    Agent,
    Controller,
    HostFabric,
    artefacts,
    connect,
    eventually,
    fabric,
    start_controller,
    topology,
)

from polyrhythm.cli import main

__all__ = ["artefacts", "connect", "fabric", "start_controller", "topology"]


def pki(*arguments: object) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["pki", *map(str, arguments)]) == 0
    return said.getvalue().strip()


def test_only_those_with_papers_get_in(
    fabric: HostFabric,
    start_controller: Callable[..., Controller],
    connect: Callable[..., Agent],
    tmp_path: Path,
) -> None:
    made, tokens = tmp_path / "pki", tmp_path / "tokens.toml"
    pki("init", "--dir", made)
    pki("host", "controller", "--dir", made, "--address", "127.0.0.1")
    pki("host", "h1", "--dir", made)
    old = pki("token", "alice", "--role", "read", "--file", tokens)
    controller = start_controller(
        fabric.description(verify=False),
        f"--agents-cert={made}/controller.pem", f"--agents-key={made}/controller.key",
        f"--agents-client-ca={made}/ca.pem", f"--web-cert={made}/controller.pem",
        f"--web-key={made}/controller.key", f"--web-tokens={tokens}",
    )  # fmt: skip
    assert controller.web.startswith("https://127.0.0.1:")
    trust = ssl.create_default_context(cafile=str(made / "ca.pem"))

    def status(path: str, token: str = "") -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{controller.web}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, context=trust, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    eventually(lambda: status("/api/v1/jobs", old) == 200, "the API answers")
    assert status("/healthz") == 200
    for path in ("/", "/api/v1/jobs", "/api/v1/stream", "/metrics", "/api/v1/openapi.json"):
        assert status(path) == status(path, "guess") == 401, path
    # In the clear there is nothing.
    try:
        urllib.request.urlopen(controller.web.replace("https", "http") + "/healthz", timeout=60)
        raise AssertionError("HTTP was answered")
    except OSError:
        pass
    # Rotation: the new token counts, the old one no longer.
    fresh = tmp_path / "fresh.toml"
    new = pki("token", "alice", "--role", "read", "--file", fresh)
    os.replace(fresh, tokens)
    eventually(lambda: status("/api/v1/jobs", new) == 200, "the new token")
    assert status("/api/v1/jobs", old) == 401

    own = grpc.ssl_channel_credentials(
        (made / "ca.pem").read_bytes(), (made / "h1.key").read_bytes(), (made / "h1.pem").read_bytes()
    )
    connect(controller.agents, "h1", credentials=own).next("welcome")
    # The certificate of h1 is not one of h2, and without a certificate nobody hears anything.
    said = connect(controller.agents, "h2", credentials=own).next("refusal").what
    assert "names h1, not host h2" in said
    nobody = connect(
        controller.agents, "h2", credentials=grpc.ssl_channel_credentials((made / "ca.pem").read_bytes())
    )
    assert nobody.inbox.get(timeout=60) is None
    stranger = connect(controller.agents, "h2")
    assert stranger.inbox.get(timeout=60) is None

    log = controller.log.read_text()
    listed = subprocess.run(
        ["ps", "-o", "args", "-p", str(controller.process.pid)], capture_output=True, text=True, check=True
    )
    for secret in (old, new, "PRIVATE KEY"):
        assert secret not in log
        assert secret not in listed.stdout
        assert secret not in json.dumps(controller.process.args)
