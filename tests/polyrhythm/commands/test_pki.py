# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm pki`: certificates that OpenSSL accepts, files that nobody else reads, and mistakes."""

from __future__ import annotations

import ssl
import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from controller.northbound.tokens import Caller, Role, Tokens
from polyrhythm.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pki") / "new" / "folder"
    assert main(["pki", "init", "--dir", str(made)]) == 0
    for name, address in (("controller", "127.0.0.1"), ("h1", "h1.example")):
        assert main(["pki", "host", name, "--dir", str(made), "--address", address]) == 0
    return made


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Both ends of a TLS session in memory; the server's end when it stands."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[1]


def contexts(
    folder: Path, server: str, client: str | None, ca: Path
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(folder / f"{server}.pem", folder / f"{server}.key")
    serves.load_verify_locations(ca)
    serves.verify_mode = ssl.CERT_REQUIRED
    calls = ssl.create_default_context(cafile=str(ca))
    calls.verify_flags |= ssl.VERIFY_X509_STRICT
    if client is not None:
        calls.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    return serves, calls


@pytest.mark.parametrize(
    ("server", "client", "name"), [("controller", "h1", "127.0.0.1"), ("h1", "controller", "h1.example")]
)
def test_each_certificate_serves_both_ends_under_its_names(
    folder: Path, server: str, client: str, name: str
) -> None:
    shown = handshake(*contexts(folder, server, client, folder / "ca.pem"), name).getpeercert()
    assert ("DNS", client) in shown["subjectAltName"]
    assert shown["subject"][0][0] == ("commonName", client)
    with pytest.raises(ssl.SSLCertVerificationError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(*contexts(folder, server, client, folder / "ca.pem"), "other.example")


def test_another_authority_of_the_same_name_is_not_trusted(folder: Path, tmp_path: Path) -> None:
    assert main(["pki", "init", "--dir", str(tmp_path)]) == 0
    with pytest.raises(ssl.SSLError):
        handshake(*contexts(folder, "controller", "h1", tmp_path / "ca.pem"), "127.0.0.1")


def test_a_host_signs_nobody_and_keys_are_secret(folder: Path) -> None:
    for name in ("ca", "controller", "h1"):
        assert stat.S_IMODE((folder / f"{name}.key").stat().st_mode) == 0o600
        made = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())
        found = made.extensions.get_extension_for_class(x509.BasicConstraints)
        assert found.critical
        assert found.value.ca is (name == "ca")
        usage = made.extensions.get_extension_for_class(x509.KeyUsage).value
        assert usage.key_cert_sign is (name == "ca")


def test_renewal_replaces_key_and_certificate_and_nothing_else_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "h1.pem").read_bytes(), (folder / "h1.key").read_bytes()
    assert main(["pki", "host", "h1", "--dir", str(folder)]) == 2
    assert "h1.pem exists; legal: another folder or name, or --renew" in capsys.readouterr().err
    assert (before) == ((folder / "h1.pem").read_bytes(), (folder / "h1.key").read_bytes())
    assert main(["pki", "host", "h1", "--dir", str(folder), "--renew", "--address", "h1.example"]) == 0
    assert (folder / "h1.pem").read_bytes() != before[0]
    assert (folder / "h1.key").read_bytes() != before[1]
    assert main(["pki", "init", "--dir", str(folder)]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["host", "../x"], "legal: up to 64 letters"),
        (["host", "ca"], "and not ca"),
        (["host", "x", "--address", "a b"], "--address 'a b': legal: an IP address or a DNS name"),
        (["host", "x", "--days", "36500"], "the authority ends on"),
        (["init", "--name", ""], "legal: up to 64 printable characters"),
    ],
)
def test_mistakes_make_no_file(
    folder: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    assert main(["pki", *arguments, "--dir", str(folder)]) == 2
    assert says in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_folder_without_an_authority_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pki", "host", "h1", "--dir", str(tmp_path)]) == 2
    assert (
        "ca.pem: No such file or directory; legal: a folder of `polyrhythm pki init`"
        in capsys.readouterr().err
    )
    (tmp_path / "ca.pem").write_text("x")
    (tmp_path / "ca.key").write_text("x")
    assert main(["pki", "host", "h1", "--dir", str(tmp_path)]) == 2


def test_tokens_are_added_and_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens.toml"
    shown = []
    for name, role in (("grafana", "read"), ("ops", "operate"), ("grafana", "read")):
        assert main(["pki", "token", name, "--role", role, "--file", str(file)]) == 0
        shown.append(capsys.readouterr().out.strip())
    assert not any(token in file.read_text() for token in shown)
    assert len(tomllib.loads(file.read_text())["tokens"]) == 3
    tokens = Tokens(file)
    assert tokens.caller(shown[0]) == tokens.caller(shown[2]) == Caller("grafana", Role.READ)
    assert tokens.caller(shown[1]) == Caller("ops", Role.OPERATE)
    before = file.read_text()
    assert main(["pki", "token", 'a"\nrole = "x', "--role", "read", "--file", str(file)]) == 2
    assert file.read_text() == before
    assert main(["pki", "token", "a", "--role", "read", "--file", str(tmp_path / "t.json")]) == 2
