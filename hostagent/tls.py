# SPDX-License-Identifier: Apache-2.0
"""The certificates of the agent's session with the controller: checked, and turned into gRPC credentials."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polyrhythm_files import InvalidValueError
from polyrhythm_files.renewal import FromFiles

if TYPE_CHECKING:
    import grpc

    from hostagent.config import TlsSettings


def check_certificates(settings: TlsSettings) -> None:
    """Check that the files exist and hold certificates and a key, and that key and certificate belong
    together.

    Raises InvalidValueError with the path of the key that is wrong.
    """
    if not settings.ca:
        return
    # Imported here: an agent without TLS saves its memory.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(settings.ca)
    except (OSError, ValueError) as error:
        what = _why(error, "not a certificate in PEM")
        raise InvalidValueError(("tls", "ca"), f"{settings.ca}: {what}") from None
    if settings.cert:
        for key in ("cert", "key"):
            _check_readable(("tls", key), Path(getattr(settings, key)))
        try:
            context.load_cert_chain(settings.cert, settings.key, password=_no_password)
        except (OSError, ValueError) as error:
            what = _why(error, "not a certificate and its key in PEM, without a password")
            raise InvalidValueError(("tls", "cert"), f"{settings.cert}, {settings.key}: {what}") from None


def newest_credentials(settings: TlsSettings) -> FromFiles[grpc.ChannelCredentials | None]:
    """gRPC credentials from the files as they are by then. None: the session does not use TLS.

    Raises InvalidValueError as `check_certificates` does.
    """
    files = tuple(path for path in (settings.ca, settings.cert, settings.key) if path)
    return FromFiles(files, lambda: _channel_credentials(settings))


def _channel_credentials(settings: TlsSettings) -> grpc.ChannelCredentials | None:
    check_certificates(settings)
    if not settings.ca:
        return None
    import grpc

    own = [Path(path).read_bytes() for path in (settings.key, settings.cert) if path]
    return grpc.ssl_channel_credentials(Path(settings.ca).read_bytes(), *own)


def _check_readable(loc: tuple[str, str], path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise InvalidValueError(loc, f"{path}: {error.strerror}") from None


def _no_password(*_: object) -> str:
    raise ValueError("a key with a password cannot be used")


def _why(error: Exception, what: str) -> str:
    """The reason for people: the system's error for an unreadable file, `what` in place of OpenSSL's
    words."""
    from ssl import SSLError

    said = error.strerror if isinstance(error, OSError) and not isinstance(error, SSLError) else None
    if isinstance(error, SSLError) and "MISMATCH" in str(error):
        said = "the key does not belong to the certificate"
    return said or what
