# SPDX-License-Identifier: Apache-2.0
"""The check of certificates, with real ones: expired, of another authority, with another key, and more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from hostagent.config import AgentSettings, Config, TlsSettings
from polyrhythm.doctor.certificates import check_certificates
from polyrhythm.doctor.finding import Deployment, ProblemError, UncheckedError

NOW = datetime.now(UTC)


class Authority:
    def __init__(self, name: str = "ca") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.own = self.certificate(name, self.key, ca=True)

    def certificate(
        self, name: str, key: ec.EllipticCurvePrivateKey, *, begin: int = -1, end: int = 365, ca: bool = False
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW + timedelta(days=begin))
            .not_valid_after(NOW + timedelta(days=end))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )


OURS, FOREIGN = Authority(), Authority("another")
KEY, OTHER_KEY = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


def written(
    folder: Path, cert: x509.Certificate, *, key: ec.EllipticCurvePrivateKey = KEY, ca: bytes | None = None
) -> Deployment:
    (folder / "ca.pem").write_bytes(OURS.own.public_bytes(Encoding.PEM) if ca is None else ca)
    (folder / "c.pem").write_bytes(cert.public_bytes(Encoding.PEM))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "k.pem").write_bytes(pem)
    names = (str(folder / name) for name in ("ca.pem", "c.pem", "k.pem"))
    tls = TlsSettings(**dict(zip(("ca", "cert", "key"), names, strict=True)))
    return Deployment(agent=Config(agent=AgentSettings(host="h1", ip="10.0.0.1"), tls=tls))


def test_good_ones_are_ok(tmp_path: Path) -> None:
    here = written(tmp_path, OURS.certificate("h1", KEY))
    assert check_certificates(here) == "agent [tls]: in force, and from their authorities"


@pytest.mark.parametrize(
    ("cert", "words"),
    [
        (OURS.certificate("h1", KEY, begin=-10, end=-1), "c.pem has expired on"),
        (OURS.certificate("h1", KEY, begin=1, end=9), "c.pem is not valid before"),
        (OURS.certificate("h1", KEY, end=9), "c.pem expires soon, on"),
        (OURS.certificate("h2", KEY), "c.pem names h2, not h1"),
        (OURS.certificate("h1", OTHER_KEY), "k.pem is not the key of"),
        (FOREIGN.certificate("h1", KEY), "c.pem does not come from the authority of ca"),
    ],
    ids=["expired", "not yet", "soon", "name", "key", "authority"],
)
def test_each_fault_is_named(tmp_path: Path, cert: x509.Certificate, words: str) -> None:
    with pytest.raises(ProblemError) as found:
        check_certificates(written(tmp_path, cert))
    assert words in str(found.value)
    assert found.value.remedy


def test_files_that_are_missing_or_no_certificates(tmp_path: Path) -> None:
    here = written(tmp_path, OURS.certificate("h1", KEY), ca=b"nothing")
    with pytest.raises(ProblemError, match="is not PEM as it should be"):
        check_certificates(here)
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(ProblemError, match=r"ca\.pem: No such file"):
        check_certificates(here)


def test_without_tls_there_is_nothing_to_check() -> None:
    with pytest.raises(UncheckedError, match="section tls"):
        check_certificates(Deployment(agent=Config(agent=AgentSettings(host="h1", ip="10.0.0.1"))))
