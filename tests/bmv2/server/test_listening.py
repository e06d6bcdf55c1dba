# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS: with raw clients, with finsy, and by the command line."""

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc
from p4rt_rig import PATIENCE_S, Client

from bmv2.server import CertificateError, Tls

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")


@dataclass(frozen=True)
class Papers:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(folder, name):
    papers = Papers(folder / f"{name}.pem", folder / f"{name}.key")
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2),
        *("-subj", f"/CN={name}", "-keyout", papers.key, "-out", papers.cert),
    )
    return papers


def issued(folder, issuer, name):
    papers = Papers(folder / f"{name}.pem", folder / f"{name}.key")
    request, extension = folder / f"{name}.csr", folder / f"{name}.ext"
    extension.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", f"/CN={name}", "-keyout", papers.key, "-out", request),
    )
    openssl(
        *("x509", "-req", "-in", request, "-CA", issuer.cert, "-CAkey", issuer.key, "-CAcreateserial"),
        *("-days", 2, "-extfile", extension, "-out", papers.cert),
    )
    return papers


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """Two authorities; a server and a client of the first, a stranger of the second."""
    folder = tmp_path_factory.mktemp("pki")
    root, other = authority(folder, "root"), authority(folder, "other")
    return {
        "root": root,
        "other": other,
        "server": issued(folder, root, "server"),
        "client": issued(folder, root, "client"),
        "stranger": issued(folder, other, "stranger"),
    }


def server_tls(pki, *, client_auth=False):
    server, root = pki["server"], str(pki["root"].cert)
    return Tls.read(str(server.cert), str(server.key), root if client_auth else None, client_auth=client_auth)


def credentials(pki, papers=None):
    return grpc.ssl_channel_credentials(
        root_certificates=pki["root"].cert.read_bytes(),
        private_key=None if papers is None else papers.key.read_bytes(),
        certificate_chain=None if papers is None else papers.cert.read_bytes(),
    )


def version(address, channel_credentials):
    """The server's P4Runtime version, or the code of the refusal."""
    if channel_credentials is None:
        channel = grpc.insecure_channel(address)
    else:
        channel = grpc.secure_channel(address, channel_credentials)
    with channel:
        try:
            asked = p4r.CapabilitiesRequest()
            return (
                p4r_grpc.P4RuntimeStub(channel).Capabilities(asked, timeout=PATIENCE_S).p4runtime_api_version
            )
        except grpc.RpcError as error:
            return error.code().name


def test_tls_admits_who_trusts_the_server_and_no_one_in_the_clear(start_rig, pki):
    address = start_rig(tls=server_tls(pki)).server.address
    assert version(address, credentials(pki)).startswith("1.")
    assert version(address, None) == "UNAVAILABLE"
    distrustful = grpc.ssl_channel_credentials(pki["stranger"].cert.read_bytes())
    assert version(address, distrustful) == "UNAVAILABLE"


def test_mutual_tls_admits_only_clients_of_the_authority(start_rig, pki):
    address = start_rig(tls=server_tls(pki, client_auth=True)).server.address
    assert version(address, credentials(pki, pki["client"])).startswith("1.")
    assert version(address, credentials(pki)) == "UNAVAILABLE"
    assert version(address, credentials(pki, pki["stranger"])) == "UNAVAILABLE"


def test_a_new_connection_gets_the_certificate_that_is_there_by_then(start_rig, pki, tmp_path):
    used = {name: tmp_path / name for name in ("cert", "key", "ca")}

    def issue(papers, root):
        for name, file in (("cert", papers.cert), ("key", papers.key), ("ca", root.cert)):
            used[name].write_bytes(file.read_bytes())

    issue(pki["server"], pki["root"])
    tls = Tls.read(*map(str, used.values()), client_auth=True)
    address = start_rig(tls=tls).server.address
    assert version(address, credentials(pki, pki["client"])).startswith("1.")
    # `stranger` is of another authority: server and clients change over to it.
    issue(pki["stranger"], pki["other"])
    others = {**pki, "root": pki["other"]}
    assert version(address, credentials(others, pki["stranger"])).startswith("1.")
    assert version(address, credentials(pki, pki["client"])) == "UNAVAILABLE"
    # A key without its certificate, as between two writes: the former ones stay.
    used["key"].write_text("none")
    assert version(address, credentials(others, pki["stranger"])).startswith("1.")


def test_many_clients_at_once_under_mutual_tls(start_rig, pki, config):
    address = start_rig(tls=server_tls(pki, client_auth=True)).server.address
    clients = [Client(address, credentials=credentials(pki, pki["client"])) for _ in range(24)]
    try:
        statuses = [client.arbitrate(index + 1).status.code for index, client in enumerate(clients)]
        assert statuses == [0] * 24
        clients[-1].set_config(config)
        assert clients[0].read(p4r.Entity(table_entry=p4r.TableEntry())) == []
        with pytest.raises(grpc.RpcError) as caught:
            clients[0].set_config(config)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    finally:
        for client in clients:
            client.close()


def test_finsy_holds_a_session_under_mutual_tls(start_rig, pki):
    rig = start_rig(tls=server_tls(pki, client_auth=True))
    rig.wires[1] = 2
    build = ROOT / "p4/build"
    done = subprocess.run(
        [
            *(sys.executable, Path(__file__).parents[2] / "rigs" / "finsy_session.py", rig.server.address),
            *(build / "polyrhythm.v1model.p4info.txtpb", build / "polyrhythm.v1model.json"),
            *(pki["root"].cert, pki["client"].cert, pki["client"].key),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["primary"] is True
    assert seen["packet"] == [2, 2, True]


def test_the_command_line_takes_bmv2s_options(pki):
    server, root = pki["server"], pki["root"]
    argv = [sys.executable, "-m", "polyrhythm", "switch", "--no-p4", "--log-console", "--"]
    argv += ["--grpc-server-addr", "127.0.0.1:0", "--grpc-server-ssl", "--grpc-server-with-client-auth"]
    argv += [
        "--grpc-server-cert",
        server.cert,
        "--grpc-server-key",
        server.key,
        "--grpc-server-cacert",
        root.cert,
    ]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        address = next(
            found[1] for line in process.stdout if (found := re.search(r"with TLS on (\S+:\d+)", line))
        )
        assert version(address, credentials(pki, pki["client"])).startswith("1.")
        assert version(address, credentials(pki)) == "UNAVAILABLE"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()


def test_files_that_are_no_certificates_are_said(pki, tmp_path):
    server = pki["server"]
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    cert, key = str(server.cert), str(server.key)
    with pytest.raises(CertificateError, match=r"empty\.pem: holds no certificate in PEM"):
        Tls.read(str(empty), key, None, client_auth=False)
    with pytest.raises(CertificateError, match="holds no private key in PEM"):
        Tls.read(cert, cert, None, client_auth=False)
    with pytest.raises(CertificateError, match="nowhere: No such file"):
        Tls.read("nowhere", key, None, client_auth=False)
    with pytest.raises(CertificateError, match="needs a CA file"):
        Tls.read(cert, key, None, client_auth=True)
