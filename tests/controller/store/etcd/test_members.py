# SPDX-License-Identifier: Apache-2.0
"""Calls to etcd over TLS, and to members that are not there."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from etcd_rig import Cluster, needs_etcd

from controller.store.etcd.address import EtcdAddress, EtcdTls
from controller.store.etcd.members import Etcd, EtcdError

pytestmark = [needs_etcd, pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")]


def certificate(folder: Path, name: str, authority: str = "") -> tuple[Path, Path]:
    """A certificate for loopback and its key; without an authority it signs itself."""
    by = ["-CA", f"{folder}/{authority}.pem", "-CAkey", f"{folder}/{authority}.key"] if authority else []
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem", "-days", "2"]
        + ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        + (["-addext", "basicConstraints=critical,CA:FALSE", *by] if by else []),
        check=True,
        capture_output=True,
    )
    return folder / f"{name}.pem", folder / f"{name}.key"


def test_members_that_ask_for_certificates(tmp_path: Path) -> None:
    ca, _ = certificate(tmp_path, "ca")
    certificate(tmp_path, "etcd", "ca")
    own = certificate(tmp_path, "c1", "ca")
    stranger, strange_key = certificate(tmp_path, "stranger")
    options = ["--client-cert-auth", f"--trusted-ca-file={tmp_path}/ca.pem"]
    options += [f"--cert-file={tmp_path}/etcd.pem", f"--key-file={tmp_path}/etcd.key"]
    cluster = Cluster(tmp_path, options=options, tls=EtcdTls(ca, *own))
    try:
        (member,) = cluster.address().members
        for tls in (EtcdTls(ca), EtcdTls(ca, stranger, strange_key), EtcdTls(stranger, *own), None):
            etcd = Etcd(EtcdAddress((member,), tls=tls))
            with pytest.raises(EtcdError, match="does not answer") as caught:
                etcd.grant(5, 2.0)
            assert "\n" not in str(caught.value)
            etcd.close()
        etcd = Etcd(cluster.address())
        lease = etcd.grant(5, 5.0)
        assert etcd.renew(lease, 5.0)
        etcd.close()
        # Certificates that are replaced are used without a restart.
        renewed = Etcd(EtcdAddress((member,), tls=EtcdTls(ca, stranger, strange_key)))
        with pytest.raises(EtcdError, match="does not answer"):
            renewed.grant(5, 2.0)
        strange_key.write_bytes(own[1].read_bytes())
        stranger.write_bytes(own[0].read_bytes())
        assert renewed.renew(renewed.grant(5, 5.0), 5.0)
        renewed.close()
    finally:
        cluster.end(signal.SIGKILL)
