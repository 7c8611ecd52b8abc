"""Words that are nearly right: flags, commands, units."""

from pathlib import Path

import pytest

from tests.unit.cli.command import run


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("limits", "set", "--resouce", "r"), "--resouce; did you mean --resource?"),
        (("limits", "set", "--entty=a", "x=1/s"), "--entty=a; did you mean --entity?"),
        (("serve", "--grpc-prot", "1"), "--grpc-prot 1; did you mean --grpc-port?"),
        (("check", "--domian", "d", "--domain", "d", "a=b"), "did you mean --domain?"),
        (("audit", "--system", "--zzz"), "unrecognized arguments: --zzz\n"),
        (("limit", "show"), "there is no 'limit'; did you mean limits? (choose from serve, check,"),
        (("limits", "sohw"), "there is no 'sohw'; did you mean show? (choose from set, show,"),
        (("limits", "set", "rpm=5/minuet"), "a duration such as 90s; did you mean minute?"),
        (("limits", "set", "rpm=5/M"), "a duration such as 90s; did you mean minute or month?"),
        (("limits", "set", "rpm=5/fortnight"), "a duration such as 90s\n"),
    ],
)
def test_what_was_meant_is_named(tmp_path: Path, command: tuple[str, ...], message: str) -> None:
    """With exit code 2, and the usage of the command that was typed."""
    ran = run(*command, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    if "unrecognized" in ran.err:
        assert f"usage: penstock {command[0]}" in ran.err


def test_a_minute_has_its_spellings(tmp_path: Path) -> None:
    """All but the one that may be a month."""
    for rate in ("5/m", "5/MIN", "5/Minute"):
        ran = run("limits", "set", "--create", f"rpm={rate}", cwd=tmp_path)
        assert (ran.code, ran.out) == (0, "system: rpm=5/minute\n")
