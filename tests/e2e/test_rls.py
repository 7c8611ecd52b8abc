"""The Rate Limit Service as an independent client sees it. Each test has a value of its own."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rls_client import Refused, XdsClient, entries
from tests.support.processes import Penstock, penstock

pytestmark = pytest.mark.usefixtures("transport")

RULES = Path(__file__).parent / "rls.yaml"

OK = {"code": "OK", "limit_remaining": 0}
"""A status that says nothing of a limit."""


class Rls:
    """The client, bound to one server and domain."""

    def __init__(self, xds: XdsClient, server: Penstock) -> None:
        self._xds = xds
        self._address = server.address

    def ask(self, *descriptors: Any, domain: str = "basic", hits: int = 0) -> dict[str, Any]:
        return self._xds.ask(self._address, domain, *descriptors, hits=hits)

    def refused(self, *descriptors: Any, domain: str = "basic") -> Refused:
        return self._xds.ask_in_vain(self._address, domain, *descriptors)

    def status(self, descriptor: Any, hits: int = 0) -> dict[str, Any]:
        """The status of a single descriptor, which decides alone."""
        response = self.ask(descriptor, hits=hits)
        (status,) = response["statuses"]
        assert response["overall_code"] == status["code"]
        return dict(status)


@pytest.fixture(scope="module")
def rls(xds: XdsClient, transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rls]:
    with penstock(tmp_path_factory.mktemp(transport), rules=RULES) as server:
        yield Rls(xds, server)


def test_unknown_domain_is_ok_with_an_empty_status(rls: Rls) -> None:
    """Nobody limits what no rules file names, not even by an override."""
    override = {"limit": {"requests_per_unit": 0, "unit": "HOUR"}}
    for descriptor in (entries(twenty="x"), {**entries(twenty="x"), **override}):
        response = rls.ask(descriptor, domain="nowhere")
        assert (response["overall_code"], response["statuses"]) == ("OK", [OK])


def test_statuses_are_one_for_each_descriptor_in_order(rls: Rls) -> None:
    """Matched, unmatched, too deep, too shallow and empty descriptors each have their status."""
    statuses = rls.ask(
        entries(unknown="x"),
        entries(few="order"),
        entries(few="order", path="x"),
        entries(user="x"),
        entries(),
        entries(user="x", path="/"),
    )["statuses"]
    limits = [status.pop("current_limit", {}).get("requests_per_unit") for status in statuses]
    assert limits == [None, 2, None, None, None, 5]
    assert [statuses[i] for i in (0, 2, 3, 4)] == [OK] * 4


def test_first_hit_of_fifty_a_second_leaves_49(rls: Rls) -> None:
    """The status names the limit, what is left, and when it is full again."""
    assert rls.status(entries(second="x")) == {
        "code": "OK",
        "current_limit": {"requests_per_unit": 50, "unit": "SECOND", "name": ""},
        "limit_remaining": 49,
        "duration_until_reset": "1s",
    }


def test_quick_hits_count_down_and_then_are_over(rls: Rls) -> None:
    """Of 25 hits on 20 a year, 20 leave 19 to 0, and five are over with 0."""
    statuses = [rls.status(entries(twenty="x")) for _ in range(25)]
    assert [status["limit_remaining"] for status in statuses] == [*reversed(range(20)), *[0] * 5]
    assert [status["code"] for status in statuses] == ["OK"] * 20 + ["OVER_LIMIT"] * 5


def test_reset_is_until_full_or_until_the_hit_passes(rls: Rls) -> None:
    """Half an hour for each of 2 an hour: until full while OK, until the next one when over."""
    begin = time.monotonic()
    resets = [rls.status(entries(few="reset"))["duration_until_reset"] for _ in range(3)]
    elapsed_s = math.ceil(time.monotonic() - begin)
    seconds = [int(reset.removesuffix("s")) for reset in resets]
    # A thousandth of a token, 1.8 s, may fall due at any moment.
    least_s = [expected_s - elapsed_s - 2 for expected_s in (1800, 3600, 1800)]
    for actual, least, most in zip(seconds, least_s, (1800, 3600, 1800), strict=True):
        assert least <= actual <= most


def test_limit_has_its_name_from_the_rules(rls: Rls) -> None:
    """A rule's `name` is in the status."""
    limit = rls.status(entries(few="name"))["current_limit"]
    assert limit == {"requests_per_unit": 2, "unit": "HOUR", "name": "a_few"}


def test_zero_per_unit_is_always_over(rls: Rls) -> None:
    """From the first hit, but a check still passes."""
    assert [rls.status(entries(none="x"))["code"] for _ in range(2)] == ["OVER_LIMIT"] * 2
    assert rls.status({**entries(none="x"), "hits_addend": 0})["code"] == "OK"


def test_unlimited_has_all_remaining_and_no_limit(rls: Rls) -> None:
    """The status has the largest number there is, and no `current_limit`."""
    assert rls.status(entries(free="x")) == {"code": "OK", "limit_remaining": 4_294_967_295}


def test_override_in_the_descriptor_replaces_the_rule(rls: Rls) -> None:
    """The request's own limit is used, and counted apart from the rule's."""
    override = {"limit": {"requests_per_unit": 3, "unit": "DAY"}}
    statuses = [rls.status({**entries(few="override"), **override}) for _ in range(4)]
    assert statuses[0]["current_limit"] == {"requests_per_unit": 3, "unit": "DAY", "name": ""}
    assert [status["limit_remaining"] for status in statuses] == [2, 1, 0, 0]
    assert statuses[3]["code"] == "OVER_LIMIT"
    assert rls.status(entries(few="override"))["limit_remaining"] == 1


def test_hits_of_the_request_count_unless_the_descriptor_has_its_own(rls: Rls) -> None:
    """A request's `hits_addend` is for descriptors without one."""
    assert rls.status(entries(twenty="hits"), hits=5)["limit_remaining"] == 15
    own = {**entries(twenty="hits"), "hits_addend": 2}
    assert rls.status(own, hits=5)["limit_remaining"] == 13


def test_check_consumes_nothing_and_passes_until_in_debt(rls: Rls) -> None:
    """Limit 2, check 0 then charge: an exhausted bucket still passes, one in debt does not."""
    check = {**entries(few="check"), "hits_addend": 0}
    charge = {**entries(few="check"), "hits_addend": 2}
    assert [rls.status(check)["limit_remaining"] for _ in range(3)] == [2, 2, 2]
    assert rls.status(charge)["code"] == "OK"
    assert rls.status(check)["code"] == "OK"
    assert rls.status(charge)["code"] == "OVER_LIMIT"
    assert rls.status(check)["code"] == "OVER_LIMIT"


def test_shadow_mode_is_never_over(rls: Rls) -> None:
    """A shadowed rule counts down, and says OK with nothing left."""
    statuses = [rls.status(entries(shadow="x")) for _ in range(3)]
    assert [status["code"] for status in statuses] == ["OK"] * 3
    assert [status["limit_remaining"] for status in statuses] == [0] * 3


def test_shadow_does_not_save_what_another_rule_refuses(rls: Rls) -> None:
    """Shadowed and ordinary rule both over: over."""
    both = (entries(shadow="both"), entries(one="both"))
    responses = [rls.ask(*both) for _ in range(2)]
    assert [response["overall_code"] for response in responses] == ["OK", "OVER_LIMIT"]


def test_quotas_refuse_only_together(rls: Rls) -> None:
    """Quotas of 1 and 2 a year: two pass, and the third is refused."""
    both = (entries(quota_1="x"), entries(quota_2="x"))
    codes = [rls.ask(*both)["overall_code"] for _ in range(3)]
    assert codes == ["OK", "OK", "OVER_LIMIT"]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_any_descriptor_over_makes_all_over(rls: Rls, order: tuple[int, ...]) -> None:
    """The order does not matter, and the others keep what they had."""
    value = "".join(map(str, order))
    descriptors = [entries(none="x"), entries(few=value), entries(unknown="x")]
    response = rls.ask(*[descriptors[i] for i in order])
    codes = [response["statuses"][order.index(i)]["code"] for i in range(3)]
    assert response["overall_code"] == "OVER_LIMIT"
    assert codes == ["OVER_LIMIT", "OK", "OK"]
    assert rls.status(entries(few=value))["limit_remaining"] == 1


def test_requests_that_cannot_be_decided_are_unknown_errors(rls: Rls) -> None:
    """The code and the texts are the reference server's."""
    assert rls.refused(entries(one="x"), domain="") == Refused(
        "UNKNOWN", "rate limit domain must not be empty"
    )
    assert rls.refused() == Refused("UNKNOWN", "rate limit descriptor list must not be empty")
