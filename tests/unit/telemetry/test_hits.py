"""The hits of rules: their names and labels, and a bound on what clients can make of them."""

import pytest
from penstock.telemetry.hits import (
    MAX_DETAILED,
    MAX_DETAILED_LENGTH,
    MAX_PART,
    TEXTS,
    Hits,
    HitsFamily,
    Path,
    RuleHits,
)
from penstock.telemetry.instruments import MAX_SERIES

RULE = ("d", "user")


def total(hits: RuleHits) -> HitsFamily:
    return next(hits.families())


def hit(hits: RuleHits, *path: str, plain: Path | None = None) -> Hits:
    found = hits.of(path, plain or path)
    found.total_hits += 1
    return found


def test_what_clients_show_has_a_bound() -> None:
    """A hundred thousand values: the first have series of their own, the others their rule's."""
    hits = RuleHits()
    for number in range(100_000):
        hit(hits, "d", f"user_{number}", plain=RULE)
    found = {labels: series.value for labels, series in total(hits).series()}
    assert len(found) == MAX_DETAILED + 1
    assert found["d", "user", ""] == 100_000 - MAX_DETAILED
    assert sum(value.value for _, value in total(hits).statsd_series()) == 100_000


def test_a_long_value_is_cut() -> None:
    """A client could fill the memory with a thousand of them."""
    hits = RuleHits()
    path = ("d", f"user_{'v' * 1_000_000}")
    assert hits.of(path, RULE) is hits.of(path, RULE) is not hits.of(RULE, RULE)
    labels = {labels for labels, _ in total(hits).series()}
    cut = f"user_{'v' * (MAX_PART - 5)}… (1,000,005 characters)"
    assert labels == {("d", cut, ""), ("d", "user", "")}


def test_many_values_that_are_long_together_are_counted_for_their_rule() -> None:
    """Rules may have many levels."""
    hits = RuleHits()
    deep = ("d", *["v" * MAX_PART] * (MAX_DETAILED_LENGTH // MAX_PART))
    assert hits.of(deep[:-1], RULE) is not hits.of(RULE, RULE)
    assert hits.of(deep, RULE) is hits.of(RULE, RULE)


def test_what_clients_show_is_escaped() -> None:
    """A terminal may show the page."""
    hits = RuleHits()
    hits.of(("d", "user_\x1b[2J\u202e"), RULE)
    assert [labels for labels, _ in total(hits).series()] == [("d", "user_\\x1b[2J\\u202e", "")]
    ((name, _),) = total(hits).statsd_series()
    assert name == "ratelimit.service.rate_limit.d.user_\\x1b[2J\\u202e.total_hits"


def test_rules_have_a_bound_too() -> None:
    """As for a server whose rules were replaced ten thousand times; and none of it is an error."""
    hits = RuleHits()
    for number in range(MAX_DETAILED):
        hit(hits, "d", f"user_{number}", plain=RULE)
    for number in range(MAX_SERIES + 100):
        hit(hits, "d", f"key-{number}")
    for number in range(100):
        hit(hits, f"domain-{number}")
        hit(hits, "d", f"late_{number}", plain=("d", f"late-{number}"))
    found = {labels: series.value for labels, series in total(hits).series()}
    assert len(found) == MAX_SERIES + MAX_DETAILED + 1
    assert found["other", "", ""] == 300


@pytest.mark.parametrize(
    ("path", "labels", "statsd"),
    [
        (("d", "key"), ("d", "key", ""), "d.key"),
        (("d", "key_value", "sub"), ("d", "key_value", "sub"), "d.key_value.sub"),
        (("d", "a", "b", "c", "d"), ("d", "a", "b"), "d.a.b.c.d"),
        (("d", "ip_10.0.0.1:80|x"), ("d", "ip_10_0_0_1_80_x", ""), "d.ip_10_0_0_1_80_x"),
        (("d", "path_/a.html"), ("d", "path_/a.html", ""), "d.path_/a.html"),
        (("d", "who_a b@c#d\n"), ("d", "who_a b@c#d\n", ""), "d.who_a_b_c_d_"),
        (("d", "v_1.2.3"), ("d", "v_1.2.3", ""), "d.v_1.2.3"),
    ],
)
def test_a_rule_is_named_as_the_reference_server_names_it(
    path: Path, labels: Path, statsd: str
) -> None:
    """Colons, bars and the dots of addresses are underscores there, for Prometheus, too."""
    hits = RuleHits()
    hit(hits, *path)
    assert [found for found, _ in total(hits).series()] == [labels]
    name = f"ratelimit.service.rate_limit.{statsd}.total_hits"
    assert [found for found, _ in total(hits).statsd_series()] == [name]


def test_rules_below_the_second_level_are_summed_up_for_prometheus() -> None:
    """It has two labels for keys; StatsD has all of them apart."""
    hits = RuleHits()
    for last in ("x", "y", "y"):
        hit(hits, "d", "a", "b", last)
    assert [(labels, value.value) for labels, value in total(hits).series()] == [
        (("d", "a", "b"), 3)
    ]
    assert sorted(value.value for _, value in total(hits).statsd_series()) == [1, 2]


def test_every_count_is_a_family() -> None:
    """With the reference server's name, and its own value; what is not over is within."""
    hits = RuleHits()
    counted = hits.of(RULE, RULE)
    counted.total_hits, counted.over_limit = 10, 4
    counted.near_limit, counted.shadow_mode = 2, 1
    values = {
        family.name: value.value for family in hits.families() for _, value in family.series()
    }
    assert values == {
        "ratelimit_service_rate_limit_total_hits": 10,
        "ratelimit_service_rate_limit_over_limit": 4,
        "ratelimit_service_rate_limit_near_limit": 2,
        "ratelimit_service_rate_limit_within_limit": 6,
        "ratelimit_service_rate_limit_shadow_mode": 1,
    }
    assert {family.text for family in hits.families()} == set(TEXTS.values())
