# SPDX-License-Identifier: Apache-2.0
"""Sessions with switches that speak TLS, and want to know who the controller is."""

import shutil
import subprocess
from functools import partial

import pytest
from control_rig import eventually, running

from bmv2.server import Tls, serve

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def pki(tmp_path):
    """An authority, and a certificate of it for 127.0.0.1."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        *("req", "-x509", *key, "-days", 2, "-subj", "/CN=root"),
        *("-keyout", tmp_path / "root.key", "-out", tmp_path / "ca.pem"),
    )
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("req", *key, "-subj", "/CN=one", "-keyout", tmp_path / "one.key", "-out", tmp_path / "one.csr")
    openssl(
        *("x509", "-req", "-in", tmp_path / "one.csr", "-CA", tmp_path / "ca.pem", "-CAcreateserial"),
        *("-CAkey", tmp_path / "root.key", "-days", 2, "-extfile", tmp_path / "names"),
        *("-out", tmp_path / "one.pem"),
    )
    return tmp_path


def test_switches_are_programmed_over_mutual_tls(pki, topology, start_controller):
    tls = Tls.read(str(pki / "one.pem"), str(pki / "one.key"), str(pki / "ca.pem"), client_auth=True)
    with running(topology, partial(serve, tls=tls)) as fabric:
        # Files are looked for beside the description.
        papers = {"ca": "ca.pem", "cert": "one.pem", "key": "one.key"}
        trusted = start_controller(fabric.description(tls=papers))
        for name in topology.switch:
            eventually(partial(trusted.says, f"{name} is in service"))
        # The port states come over the same channel.
        port = next(p for p, peer in topology.ports["leaf1"].items() if peer.node == "spine1")
        fabric.on_data_plane(lambda: fabric.switches["leaf1"].set_port_up(port, False))
        eventually(lambda: trusted.says(f"switch leaf1: port {port} (to spine1) is down"))


@pytest.mark.slow
def test_a_controller_without_a_certificate_is_not_let_in(pki, topology, start_controller):
    tls = Tls.read(str(pki / "one.pem"), str(pki / "one.key"), str(pki / "ca.pem"), client_auth=True)
    with running(topology, partial(serve, tls=tls)) as fabric:
        stranger = start_controller(fabric.description(tls={"ca": "ca.pem"}))
        eventually(lambda: stranger.says("leaf1 at 127.0.0.1"))
        assert not stranger.says("is in service")


@pytest.mark.slow
def test_certificates_are_read_when_a_session_begins(pki, topology, start_controller):
    tls = Tls.read(str(pki / "one.pem"), str(pki / "one.key"), str(pki / "ca.pem"), client_auth=True)
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2),
        *("-subj", "/CN=stranger", "-keyout", pki / "own.key", "-out", pki / "own.pem"),
    )
    with running(topology, partial(serve, tls=tls)) as fabric:
        controller = start_controller(
            fabric.description(tls={"ca": "ca.pem", "cert": "own.pem", "key": "own.key"})
        )
        eventually(lambda: controller.says("leaf1 at 127.0.0.1"))
        assert not controller.says("is in service")
        for kind in ("pem", "key"):
            shutil.copy(pki / f"one.{kind}", pki / f"own.{kind}")
        eventually(lambda: controller.says("leaf1 is in service"))
