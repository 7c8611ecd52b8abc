"""`penstock check`: looks that take nothing, charges that say so, domains that are unknown."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Penstock, penstock
from tests.unit.cli.command import RULES, check, run, write_rules

MORE = """\
  - key: strict
    rate_limit: {unit: hour, requests_per_unit: 100, on_exceed: reject}
  - key: daily
    rate_limit: {unit: day, requests_per_unit: 100, on_exceed: debt}
  - key: two
    rate_limits:
      - {name: wide, unit: day, requests_per_unit: 100, on_exceed: reject}
      - {name: deep, unit: day, requests_per_unit: 10, on_exceed: debt}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 100, on_exceed: reject}
entities:
  - keys: [api_key, model]
    entity: "{api_key}"
    resource: "{model}"
    consume: {rpm: 1, tpm: 0}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peek")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Penstock]:
    """One server for all; each test has values of its own."""
    run("limits", "set", "--create", "rpm=5/hour", "tpm=50/hour", cwd=folder)
    with penstock(folder, rules=write_rules(folder, RULES + MORE)) as running:
        yield running


@pytest.mark.parametrize("descriptor", ["few=peek", "api_key=bob,model=gpt-4"])
def test_a_peek_shows_what_is_left_and_takes_nothing(server: Penstock, descriptor: str) -> None:
    """Not even what a mapping takes by itself."""
    first = check(server, "--peek", "--repeat", "3", descriptor)
    assert (first.code, first.err) == (0, "")
    assert len(set(first.out.splitlines())) == 2, "all three are alike"
    assert re.search(r": OK, [25] left of [25] per hour \(.*\), full\n", first.out)
    left = int(first.out.partition(": OK, ")[2].partition(" ")[0])
    assert f": OK, {left - 1} left" in check(server, descriptor).out
    assert f": OK, {left - 1} left" in check(server, "--peek", descriptor).out


def test_a_peek_tells_what_a_request_would_be_told(server: Penstock) -> None:
    """With the exit code of a request that is over."""
    assert check(server, "--hits", "90", "many=would").code == 0
    assert check(server, "--peek", "--hits", "10", "many=would").code == 0
    over = check(server, "--peek", "--hits", "11", "many=would")
    assert over.code == 1
    assert over.out.startswith("OVER_LIMIT\n  many=would: OVER_LIMIT, ")
    assert ", try again in " in over.out
    assert check(server, "--hits", "10", "many=would").code == 0


def test_hits_of_0_pass_until_there_is_debt(server: Penstock) -> None:
    """As Envoy's own checks before a stream, and nothing is taken."""
    assert "100 left" in check(server, "--hits", "0", "metered=zero").out
    assert check(server, "--charge", "100", "metered=zero").code == 0
    assert check(server, "--hits", "0", "metered=zero").code == 0
    assert check(server, "--charge", "50", "metered=zero").code == 1
    assert check(server, "--hits", "0", "metered=zero").code == 1


def test_a_charge_that_landed_says_so(server: Penstock) -> None:
    """Whether it fitted or not, and never that it should be tried again."""
    fits = check(server, "--charge", "60", "metered=charge")
    assert fits.out.startswith("OK\n  metered=charge: OK, charged 60, 40 left of 100 per hour, ")
    over = check(server, "--charge", "60", "metered=charge")
    assert (over.code, over.out) == (
        1,
        "OVER_LIMIT\n"
        "  metered=charge: OVER_LIMIT, charged 60, more than was left of 100 per hour\n",
    )
    assert check(server, "--hits", "0", "metered=charge").code == 1, "it is in debt"


def test_a_charge_that_was_refused_says_so(server: Penstock) -> None:
    """On a rule that is not metered it is a cost."""
    over = check(server, "--charge", "101", "strict=charge")
    assert over.code == 1
    assert ": OVER_LIMIT, not charged, 0 left of 100 per hour, try again in " in over.out
    assert "100 left" in check(server, "--peek", "strict=charge").out


def test_a_charge_that_goes_too_deep_says_how_much_was_charged(server: Penstock) -> None:
    """A rule's debt is one burst at most; the rest is on no record."""
    check(server, "--charge", "190", "daily=deep")
    part = check(server, "--charge", "25", "daily=deep")
    assert ": OVER_LIMIT, charged 10 of 25, more than was left of 100 per day\n" in part.out
    none = check(server, "--charge", "25", "daily=deep")
    assert ": OVER_LIMIT, not charged, 0 left of 100 per day, try again in " in none.out


def test_what_a_denied_request_does_not_take_is_not_said_to_be_charged(server: Penstock) -> None:
    """One cost does not fit, so the costs beside it are not taken, either."""
    over = check(server, "--charge", "60", "strict=fits", "many=never", "strict=fits")
    assert over.out.count(", not charged, ") == 3
    passed = check(server, "--charge", "101", "shadow=cost")
    assert (passed.code, ": OK, not charged, 0 left" in passed.out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "charged"),
    [
        (("--charge", "150", "daily=json", "strict=two"), [150, 0]),
        (("--charge", "101", "strict=json", "free=1", "none=1"), [0, None, None]),
        (("--charge", "50", "two=json"), [20]),  # of the limit that is shown
        (("--charge", "2", "strict=json"), [2]),
        (("--hits", "2", "strict=json"), [None]),
        (("--refund", "2", "strict=json"), [None]),
    ],
)
def test_json_says_how_much_was_charged(
    server: Penstock, arguments: tuple[str, ...], charged: list[int | None]
) -> None:
    """Null where nothing was to be charged, or where no limit applies."""
    answer = json.loads(check(server, "--json", *arguments).out)
    assert [status["charged"] for status in answer["statuses"]] == charged


def test_an_unknown_domain_is_said(server: Penstock) -> None:
    """It is OK, as for Envoy; a descriptor without a rule in a known domain says nothing more."""
    ran = check(server, "few=1", domain="exmaple")
    assert (ran.code, ran.out) == (0, "OK\n  few=1: OK, no limit applies\n")
    assert ran.err == (
        "domain 'exmaple': the server has no rules for this domain, so no limit applies\n"
    )
    assert check(server, "none=1").err == ""
    peeked = check(server, "--peek", "--json", "few=1", domain="exmaple")
    assert (peeked.code, "no rules for this domain" in peeked.err) == (0, True)
    assert json.loads(peeked.out)["code"] == "OK"


def test_a_comma_in_a_value_can_be_asked_for(server: Penstock, folder: Path) -> None:
    """Behind a backslash, so that a client's every value can be named."""
    check(server, r"few=a\,b=c")
    buckets = run("bucket", "list", "--resource", "$domain:d", cwd=folder).out
    assert "few=a%2cb%3dc" in buckets.splitlines()
    check(server, r"few=a\\,x=1", "few=a\\b")
    buckets = run("bucket", "list", "--resource", "$domain:d", cwd=folder).out
    assert "few=a\\b" in buckets.splitlines()
