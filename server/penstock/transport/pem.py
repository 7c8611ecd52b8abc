"""PEM files: read, and checked to be what they are said to be.

The law of this file: what is checked is what was read. The file may be another a moment later.
"""

import os
import ssl
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""

NOT_ITS_KEY: Final = {
    "KEY_VALUES_MISMATCH",
    "KEY_TYPE_MISMATCH",
    "NO_CERTIFICATE_ASSIGNED",  # an RSA key for a certificate of an EC key, or the other way round
}


@dataclass(frozen=True, slots=True)
class Pem:
    """What was in a file; `where` names it, and the setting or flag that leads to it."""

    where: str
    data: bytes = field(repr=False)


def read_pem(named_by: str, path: Path) -> Pem:
    """Read a file; ConfigError if that can't be done."""
    where = f"{named_by}: {path}"
    try:
        # Reading a pipe waits for its writer, and handshakes would wait, too.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{where}: not a regular file")
        return Pem(where, path.read_bytes())
    except FileNotFoundError as exc:
        raise ConfigError(f"{where}: there is no such file") from exc
    except OSError as exc:
        raise ConfigError(f"{where}: cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise ConfigError(f"{where}: cannot be read: {exc}") from exc


def check_certificates(pem: Pem) -> None:
    """ConfigError unless there is a certificate, and none that is cut short."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust(context, pem)
    if not context.cert_store_stats()["x509"]:
        raise ConfigError(f"{pem.where}: no certificate in PEM form")


def trust(context: ssl.SSLContext, pem: Pem) -> None:
    """Let these certificates vouch for the other side. ConfigError if they can't be read."""
    try:
        with _as_file(pem) as path:
            context.load_verify_locations(path)
    except ssl.SSLError as exc:
        raise ConfigError(f"{pem.where}: no certificate in PEM form, or one cut short") from exc


def check_pair(cert: Pem, key: Pem) -> ssl.SSLContext:
    """ConfigError unless the key is that of the first certificate; gives both, ready for use."""
    check_certificates(cert)

    def no_password() -> str:
        raise ConfigError(
            f"{key.where}: the key is encrypted, and nobody is there to type a password: "
            "decrypt it, as `openssl pkey` does"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        with _as_file(cert) as cert_path, _as_file(key) as key_path:
            context.load_cert_chain(cert_path, key_path, no_password)
    except ssl.SSLError as exc:
        if exc.reason in NOT_ITS_KEY:
            text = f"{key.where}: not the key of the first certificate of {cert.where}"
            raise ConfigError(text) from exc
        reason = f" ({exc.reason})" if exc.reason else ""
        raise ConfigError(f"{key.where}: no private key in PEM form{reason}") from exc
    return context


def is_expired(pair: ssl.SSLContext, cert: Pem) -> bool:
    """Whether clients refuse it for its age. `ssl` tells no dates, so a client in memory is asked.

    It trusts the certificate itself. ConfigError if it can't even begin, as with curves that no
    client knows.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with _as_file(cert) as path:
        context.load_verify_locations(path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    server = pair.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as exc:
            return exc.verify_code == EXPIRED
        except ssl.SSLError as exc:
            raise ConfigError(f"{cert.where}: not fit for TLS ({exc.reason})") from exc
    return False


@contextmanager
def _as_file(pem: Pem) -> Iterator[str]:
    """A path to the bytes: `ssl` reads keys from files only.

    They stay in memory, so a key never gets to a disk, and a read-only root without /tmp is fine.
    macOS can't do that; a file without a name, for this user alone, is the next best.
    """
    linux = sys.platform == "linux"
    with os.fdopen(os.memfd_create("pem"), "w+b") if linux else tempfile.TemporaryFile() as file:
        file.write(pem.data)
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"
