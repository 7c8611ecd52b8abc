"""Real certificates, and files that change as Kubernetes changes them."""

import datetime
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PEM = serialization.Encoding.PEM
KEY_FORMAT = serialization.PrivateFormat.PKCS8
LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
FAR_AHEAD = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its chain, and its key, both PEM."""

    cert: bytes
    key: bytes

    @property
    def der(self) -> bytes:
        """The certificate as it is on the wire."""
        return x509.load_pem_x509_certificate(self.cert).public_bytes(serialization.Encoding.DER)


class Authority:
    """A CA of one test."""

    def __init__(self, ca: trustme.CA | None = None) -> None:
        self._ca = ca or trustme.CA()
        self.cert = self._ca.cert_pem.bytes()
        self._name = x509.load_pem_x509_certificate(self.cert).subject
        key = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def write(self, folder: Path) -> Path:
        """A file in the folder with the certificate, for those who trust this CA."""
        bundle = folder / "ca.pem"
        bundle.write_bytes(self.cert)
        return bundle

    def below(self) -> "Authority":
        """A CA that this one vouches for."""
        return Authority(self._ca.create_child_ca())

    def issue(
        self, *names: str, expired: bool = False, early: bool = False, rsa: bool = False
    ) -> Issued:
        """A certificate for host names, with a wildcard too, or addresses."""
        leaf = self._ca.issue_cert(
            *names,
            not_before=FAR_AHEAD if early else None,
            not_after=LONG_AGO if expired else None,
            key_type=trustme.KeyType.RSA if rsa else trustme.KeyType.ECDSA,
        )
        chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
        return Issued(chain, leaf.private_key_pem.bytes())

    def issue_for_uri(self, uri: str, curve: ec.EllipticCurve | None = None) -> Issued:
        """A certificate as SPIFFE has them, or one of a key of an unusual kind."""
        return self.issue_for(x509.UniformResourceIdentifier(uri), curve=curve)

    def issue_for(self, *given: x509.GeneralName, curve: ec.EllipticCurve | None = None) -> Issued:
        """A certificate with names of any kind, also such as no CA should sign."""
        key = ec.generate_private_key(curve or ec.SECP256R1())
        names = x509.SubjectAlternativeName(given)
        cert = (
            x509.CertificateBuilder(self._name, x509.Name([]), key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(LONG_AGO)
            .not_valid_after(FAR_AHEAD)
            .add_extension(names, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        plain = serialization.NoEncryption()
        return Issued(cert.public_bytes(PEM), key.private_bytes(PEM, KEY_FORMAT, plain))

    def revoke_none(self) -> bytes:
        """A list of revoked certificates, which is PEM, and no certificate."""
        lists = x509.CertificateRevocationListBuilder(self._name, LONG_AGO, FAR_AHEAD)
        return lists.sign(self._key, hashes.SHA256()).public_bytes(PEM)


def encrypted(key: bytes) -> bytes:
    """The same key, behind a password."""
    loaded = serialization.load_pem_private_key(key, None)
    return loaded.private_bytes(PEM, KEY_FORMAT, serialization.BestAvailableEncryption(b"secret"))


def served_certificate(host: str, port: int) -> bytes:
    """The certificate that a new connection gets, whoever it is of."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, port), 10) as plain, context.wrap_socket(plain) as secure:
        return secure.getpeercert(binary_form=True) or b""


class Server:
    """A TLS context, and the names that clients have asked for."""

    def __init__(self, issued: Issued, folder: Path) -> None:
        pem = folder / "server.pem"
        pem.write_bytes(issued.cert + issued.key)
        self.names: list[str | None] = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(pem)
        self.context.sni_callback = lambda _, name, __: self.names.append(name)


class SecretMount:
    """A folder as Kubernetes mounts a secret: links through `..data`, which is swapped at once."""

    def __init__(self, folder: Path, **files: bytes) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir()
        self.swap(**files)
        for name in files:
            self.path(name).symlink_to(f"..data/{self.path(name).name}")

    def path(self, name: str) -> Path:
        """`tls_crt` is the file `tls.crt`."""
        return self._folder / name.replace("_", ".")

    def swap(self, **files: bytes) -> None:
        """Put new content in place of the old, all of it in one moment."""
        self._count += 1
        new = self._folder / f"..{self._count}"
        new.mkdir()
        for name, data in files.items():
            (new / self.path(name).name).write_bytes(data)
        link = self._folder / "..data_tmp"
        link.symlink_to(new.name)
        os.replace(link, self._folder / "..data")  # noqa: PTH105 - rename is the point
