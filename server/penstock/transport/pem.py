"""Reads PEM files, and checks their content.

The law of this file: it checks the bytes that it has read, and never reads the file again. The file
may change at any moment.
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


Fingerprint = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Pem:
    """The content of a file. `where` names the file, and the setting or flag that names it."""

    where: str
    data: bytes = field(repr=False)


def read_pem(named_by: str, path: Path) -> Pem:
    """Read a file. ConfigError if this fails."""
    where = f"{named_by}: {path}"
    try:
        # To read a pipe is to wait for its writer, and all handshakes would wait, too.
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
    """ConfigError if there is no certificate, or if a certificate is cut short."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust(context, pem)
    if not context.cert_store_stats()["x509"]:
        raise ConfigError(f"{pem.where}: no certificate in PEM form")


def fingerprint(*paths: Path | None) -> Fingerprint:
    """A value that changes when a file is changed, removed or swapped, also behind a link."""
    found = []
    for path in paths:
        try:
            now = path.stat() if path else None
        except (OSError, ValueError):
            now = None
        found.append((now.st_ino, now.st_mtime_ns, now.st_size) if now else (0, 0, 0))
    return tuple(found)


def read_roots(named_by: str, path: Path | None, otherwise: str) -> Pem:
    """Certificates to trust: those of a file, or those that OpenSSL trusts, also by SSL_CERT_FILE.

    gRPC would use a list of its own. ConfigError says what to do `otherwise` if there are none.
    """
    found = ssl.get_default_verify_paths()
    if path is None and found.cafile:
        path = Path(found.cafile)
    if path is not None:
        roots = read_pem(named_by, path)
        check_certificates(roots)
        return roots
    files = sorted(Path(found.capath).glob("*.[0-9]")) if found.capath else ()
    if not files:
        raise ConfigError(f"{named_by}: no CAs found on this system: {otherwise}")
    return Pem(named_by, b"\n".join(read_pem(named_by, file).data for file in files))


def trust(context: ssl.SSLContext, pem: Pem) -> None:
    """Let these certificates vouch for the other side. ConfigError if they can't be read."""
    try:
        with _as_file(pem) as path:
            context.load_verify_locations(path)
    except ssl.SSLError as exc:
        raise ConfigError(f"{pem.where}: no certificate in PEM form, or one cut short") from exc


def check_pair(cert: Pem, key: Pem) -> ssl.SSLContext:
    """Return a context with both. ConfigError if the key does not belong to the first
    certificate."""
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
    """Whether clients refuse the certificate because it has expired.

    `ssl` does not show dates, so this makes a handshake with a client in memory that trusts the
    certificate itself. ConfigError if the handshake can't begin, as with unknown curves.
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
    """A path to the bytes, because `ssl` reads keys only from files.

    On Linux the file is in memory. So no key is written to a disk, and a read-only root without
    /tmp works. macOS has no such files. There, a temporary file without a name is used, which only
    this user can read.
    """
    linux = sys.platform == "linux"
    with os.fdopen(os.memfd_create("pem"), "w+b") if linux else tempfile.TemporaryFile() as file:
        file.write(pem.data)
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"
