"""PEM files that can be used, and what is said about the others."""

from pathlib import Path

import pytest
from penstock.errors import ConfigError
from penstock.transport.pem import Pem, check_certificates, check_pair, is_expired, read_pem

from tests.support.certificates import Authority, Issued, encrypted

CA = Authority()
EC, EC2, RSA = CA.issue("a.test"), CA.issue("a.test"), CA.issue("a.test", rsa=True)


@pytest.mark.parametrize(
    "data",
    [CA.cert, CA.cert + EC.cert, b"# \xc3\xa9 comment\n" + CA.cert + b"the end"],
    ids=["one", "two", "with other text"],
)
def test_certificates_are_fine(data: bytes) -> None:
    """One or more, with text around them."""
    check_certificates(Pem("--cacert: x", data))


@pytest.mark.parametrize(
    "data",
    [b"", b"a", b"\x00\xff", EC.key, CA.revoke_none(), CA.cert[:300], CA.cert + EC.cert[:300]],
    ids=["empty", "text", "binary", "a key", "a CRL", "cut short", "the second cut short"],
)
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    """Whole ones only, each of them."""
    with pytest.raises(ConfigError, match=r"^--cacert: x: no certificate in PEM form"):
        check_certificates(Pem("--cacert: x", data))


@pytest.mark.parametrize("pair", [EC, RSA], ids=["EC", "RSA"])
def test_a_certificate_and_its_key_fit(pair: Issued) -> None:
    """Of both usual kinds, and no more of the key is shown than its place."""
    cert, key = Pem("--cert: c", pair.cert), Pem("--key: k", pair.key)
    assert not is_expired(check_pair(cert, key), cert)
    assert repr(key) == "Pem(where='--key: k')"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (EC2.key, "not the key of the first certificate of --cert: c"),
        (RSA.key, "not the key of the first certificate of --cert: c"),
        (encrypted(EC.key), "the key is encrypted, and nobody is there to type a password"),
        (b"", "no private key in PEM form"),
        (b"hello", "no private key in PEM form"),
        (EC.key[:100], "no private key in PEM form"),
        (EC.cert, "no private key in PEM form"),
    ],
    ids=["another", "another kind", "encrypted", "empty", "text", "cut short", "a certificate"],
)
def test_a_key_that_cannot_be_used_is_refused(key: bytes, said: str) -> None:
    """With the reason, and without a question at the keyboard."""
    with pytest.raises(ConfigError) as caught:
        check_pair(Pem("--cert: c", EC.cert), Pem("--key: k", key))
    assert str(caught.value).startswith(f"--key: k: {said}")


def test_the_fault_of_a_certificate_is_not_put_on_its_key() -> None:
    """The file to mend is the one that is named."""
    with pytest.raises(ConfigError, match=r"^--cert: c: no certificate"):
        check_pair(Pem("--cert: c", EC.key), Pem("--key: k", EC.cert))


def test_an_expired_certificate_is_told() -> None:
    """It fits its key; only its time is over."""
    old = CA.issue("a.test", expired=True)
    cert = Pem("c", old.cert)
    assert is_expired(check_pair(cert, Pem("k", old.key)), cert)


def test_a_certificate_whose_time_has_not_come_is_not_expired() -> None:
    """Nor is anything else that a client may have against it."""
    new = CA.issue("a.test", early=True)
    cert = Pem("c", new.cert)
    assert not is_expired(check_pair(cert, Pem("k", new.key)), cert)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """With the setting, and why."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, said in (
        (tmp_path / "none", "there is no such file"),
        (tmp_path, "not a regular file"),
        (Path("/dev/null"), "not a regular file"),
        (loop, "cannot be read: Too many levels of symbolic links"),
        (Path("a\0b"), "cannot be read: embedded null byte"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_pem("--key", path)
        assert str(caught.value) == f"--key: {path}: {said}"


def test_checks_leave_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither open nor on a disk: they work where nothing can be written, too."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    before = _open_files()
    check_pair(Pem("c", EC.cert), Pem("k", EC.key))
    with pytest.raises(ConfigError):
        check_pair(Pem("c", EC.cert), Pem("k", EC2.key))
    assert _open_files() == before


def _open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}
