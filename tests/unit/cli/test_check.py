"""`penstock check` against a real server."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Penstock, penstock
from tests.unit.cli.command import PATIENT, check, run, write_rules


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """One server for all; each test has values of its own."""
    folder = tmp_path_factory.mktemp("check")
    with penstock(folder, rules=write_rules(folder), store="memory:") as running:
        yield running


def test_ok_exits_0_and_shows_what_is_left(server: Penstock) -> None:
    """The limit, its name and when it is full."""
    ran = check(server, "few=ok")
    assert (ran.code, ran.err) == (0, "")
    # The clock is real: a thousandth of a token, 1.8 s, may fall due at any moment.
    status = r"  few=ok: OK, 1 left of 2 per hour \(two\), resets in (30m|29m5[89]s)"
    assert re.fullmatch(rf"OK\n{status}\n", ran.out)


def test_over_the_limit_exits_1(server: Penstock) -> None:
    """With how long to wait."""
    ran = check(server, "--repeat", "3", "few=over")
    assert (ran.code, ran.err) == (1, "")
    lines = ran.out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["OK", "OK", "OVER_LIMIT"]
    assert lines[-1].startswith("  few=over: OVER_LIMIT, 0 left of 2 per hour (two), try again in ")


def test_several_descriptors_are_shown_in_order(server: Penstock) -> None:
    """Each with its own status: no limit, unlimited, a period that is no unit."""
    ran = check(server, "none=1", "free=1", "odd=1", "many=1,below=2")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "OK",
        "  none=1: OK, no limit applies",
        "  free=1: OK, unlimited",
        "  odd=1: OK, 9 left of 10 per period, resets in 9s",
        "  many=1,below=2: OK, no limit applies",
    ]


def test_json_is_one_document_a_line(server: Penstock) -> None:
    """In whole units, and always with the same keys."""
    ran = check(server, "--json", "--repeat", "2", "few=json", "odd=1", "free=1", "none=1")
    answers = [json.loads(line) for line in ran.out.splitlines()]
    assert [answer["statuses"][0]["remaining"] for answer in answers] == [1, 0]
    assert (answers[0]["code"], answers[0]["headers"]) == ("OK", [])
    two, odd, free, none = answers[0]["statuses"]
    assert 0 < two.pop("reset_in_ms") <= 3_600_000
    assert two == {
        "entries": [["few", "json"]],
        "code": "OK",
        "unlimited": False,
        "limit": {
            "name": "two",
            "tokens": 2,
            "tokens_is_largest": False,
            "period_ms": 3_600_000,
        },
        "charged": None,
        "remaining": 1,
        "remaining_is_largest": False,
    }
    limit = {"name": "", "tokens": 10, "tokens_is_largest": False, "period_ms": None}
    assert odd["limit"] == limit
    assert (free["unlimited"], free["limit"], free["remaining"]) == (True, None, None)
    assert (none["unlimited"], none["limit"], none["reset_in_ms"]) == (False, None, None)


def test_hits_asks_for_more_than_one(server: Penstock) -> None:
    """All of them or none."""
    assert "70 left" in check(server, "--hits", "30", "many=hits").out
    assert check(server, "--hits", "71", "many=hits").code == 1
    assert "69 left" in check(server, "many=hits").out


def test_charge_goes_into_debt_and_refund_gives_back(server: Penstock) -> None:
    """A report of what was used counts, even past zero."""
    assert check(server, "--charge", "150", "metered=debt").code == 1
    assert check(server, "metered=debt").code == 1
    assert check(server, "--refund", "100", "metered=debt").code == 0
    assert check(server, "metered=debt").code == 0


def test_amounts_that_the_protocol_cannot_show_are_told_as_such(server: Penstock) -> None:
    """Its numbers have 32 bits. A report has 64."""
    ran = check(server, "--json", "huge=1")
    (status,) = json.loads(ran.out)["statuses"]
    assert (status["limit"]["tokens"], status["limit"]["tokens_is_largest"]) == (2**32 - 1, True)
    assert (status["remaining"], status["remaining_is_largest"]) == (2**32 - 2, False)
    told = check(server, "--peek", "huge=2").out
    assert "at least 4294967295 left of at least 4294967295 per year" in told
    assert check(server, "--charge", str(2**32), "metered=huge").code == 1


def test_a_value_may_hold_equals_signs_and_nothing(server: Penstock) -> None:
    """Only the first one parts key from value."""
    ran = check(server, "none=a=b", "none=")
    assert ran.code == 0
    assert "none=a=b: OK" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("few",), "descriptor 'few': write KEY=VALUE, with a comma between entries"),
        (("=v",), "descriptor '=v': write KEY=VALUE, with a comma between entries"),
        (("a=b,",), "descriptor 'a=b,': write KEY=VALUE, with a comma between entries"),
        (("",), "descriptor '': write KEY=VALUE, with a comma between entries"),
        (("k=\udcff",), "'k=\\udcff' is not UTF-8, and gRPC carries only UTF-8"),
        (("--hits", "-1", "a=b"), "--hits: '-1' is not a whole number from 1 to 4294967295"),
        (("--peek", "--charge", "1", "a=b"), "--peek takes nothing: leave out --charge and"),
        (
            ("--address", "h:x", "a=b"),
            "--address: 'h:x': 'x' is not a port number: write HOST:PORT",
        ),
        (("--address", "http://h", "a=b"), "--address: 'http://h' is not an address: write HOST"),
        (("--charge", "", "a=b"), "--charge: '' is not a whole number from 1 to 184467440737095"),
        (("--refund", "x", "a=b"), "--refund: 'x' is not a whole number from 1 to 184467440737095"),
        (("--repeat", "-1", "a=b"), "--repeat: '-1' is not a whole number from 1 to 4294967295"),
        (("--timeout", "5", "a=b"), "--timeout: '5' is not a duration"),
        (("--timeout", "0", "a=b"), "--timeout: '0' must be above 0 and at most 86400 s"),
        (("--hits", "1", "--charge", "1", "a=b"), "not allowed with argument --hits"),
        ((), "the following arguments are required: KEY=VALUE"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_exit_code_2(
    server: Penstock, arguments: tuple[str, ...], message: str
) -> None:
    """Before anything is sent, and without a traceback."""
    ran = check(server, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_an_error_of_the_server_exits_2(server: Penstock) -> None:
    """With the gRPC code and the server's words."""
    ran = check(server, "a=b", domain="")
    expected = f"penstock: error: {server.address}: UNKNOWN: rate limit domain must not be empty\n"
    assert (ran.code, ran.err) == (2, expected), server.log()


def test_a_server_that_is_not_there_exits_2(tmp_path: Path) -> None:
    """With the address, and no traceback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{free.getsockname()[1]}"
        ran = run("check", "--address", address, "--domain", "d", "a=b", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"penstock: error: {address}: UNAVAILABLE: ")
    assert "Traceback" not in ran.err


def test_a_unix_socket_is_an_address(tmp_path: Path) -> None:
    """Named as `unix:PATH`."""
    rules = write_rules(tmp_path)
    with penstock(tmp_path, "--grpc-uds", "p.sock", rules=rules, store="memory:") as running:
        assert running.address == "unix:p.sock"
        command = ("check", "--address", "unix:p.sock", "--domain", "d", *PATIENT, "few=1")
        ran = run(*command, cwd=tmp_path)
    assert (ran.code, ran.out.splitlines()[0]) == (0, "OK")
