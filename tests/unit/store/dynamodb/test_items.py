"""Composite items as DynamoDB holds them: keys, attributes, and what follows from a policy."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bucket import CLOCKS_APART_MS, NEVER, Bucket, Item
from penstock.core.limits import MILLI, Limit, Unit, Window
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.items.images import Image, attribute, parse_image, write_record
from penstock.store.dynamodb.items.keys import (
    MAX_BYTES,
    bucket_of,
    bucket_sort,
    partition,
    primary_key,
    resource_partition,
)

NOW = 1_794_792_817_591
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.sampled_from(["#", "%", "%23", "%%", "a", "ENTITY#", "#META"]) | texts


def test_keys_are_those_that_the_docs_name() -> None:
    """People look items up by hand."""
    assert primary_key(Key("user-123", "gpt-4")) == {
        "PK": {"S": "ENTITY#user-123"},
        "SK": {"S": "#BUCKET#gpt-4"},
    }
    assert resource_partition("gpt-4") == "RESOURCE#gpt-4"
    assert bucket_of("user-123") == "BUCKET#user-123"


@given(st.lists(names, min_size=2, max_size=2, unique=True))
def test_two_names_never_share_a_key(pair: list[str]) -> None:
    """Whatever is in them, the separator and its escape included."""
    one, other = pair
    assert partition(one) != partition(other)
    assert bucket_sort(one) != bucket_sort(other)


@pytest.mark.parametrize("name", ["a#b", "#", "100%", "%23"])
def test_no_name_brings_a_separator_into_a_key(name: str) -> None:
    """So that no entity can pose as another kind of item."""
    assert "#" not in partition(name).removeprefix("ENTITY#")


@pytest.mark.parametrize("letter", ["a", "#", "ü", "🚰"])
def test_long_names_are_hashed_and_stay_apart(letter: str) -> None:
    """DynamoDB takes 1,024 bytes in a sort key."""
    long, longer = letter * MAX_BYTES * 2, letter * (MAX_BYTES * 2 + 1)
    assert len(bucket_sort(long).encode()) <= 1_024
    assert bucket_sort(long) != bucket_sort(longer)


windows = st.sampled_from(
    [
        Window(),
        Window(carry_debt=False),
        Window("calendar", "Pacific/Apia"),
        Window("calendar", "UTC", "sunday", carry_debt=False),
    ]
)
MONTHLY = Limit.per(5, Unit.MONTH.value, name="month", window=Window("calendar"))
units = st.sampled_from([Unit.DAY, Unit.WEEK, Unit.MONTH, Unit.YEAR])
limits = st.builds(
    Limit,
    name=names,
    capacity=st.integers(0, 2**42),
    burst=st.integers(0, 2**42),
    refill=st.integers(0, 2**42),
    period_ms=units.map(lambda unit: unit.value),
    max_debt=st.none(),
    window=st.none() | windows,
)
buckets = st.builds(Bucket, limits, st.integers(-(2**42), 2**42), st.integers(0, 2**62))


@given(
    st.lists(buckets, max_size=10, unique_by=lambda bucket: bucket.limit.name),
    st.none() | st.integers(1, 2**33),
    st.none() | names.map(lambda entity: Key(entity, "r")),
)
def test_an_item_survives_the_way_through_its_attributes(
    some: list[Bucket], expires_s: int | None, parent: Key | None
) -> None:
    """With any names, and up to ten limits."""
    ordered = tuple(sorted(some, key=lambda bucket: bucket.limit.name))
    image = Image(Item(NOW, ordered, takes=len(some)), expires_s, "fingerprint", parent)
    assert parse_image(write_record(Key("e", "r"), image)) == image


@pytest.mark.parametrize("name", ["ttl", "rf", "policy", "PK", "", "b_", "x_tk"])
def test_a_limit_never_meets_an_attribute_of_the_item(name: str) -> None:
    """However it is called."""
    image = Image(Item(NOW, (Bucket(Limit.per(5, 1_000, name=name), 1, 2),)), 7, "p", None)
    record = write_record(Key("e", "r"), image)
    assert record["ttl"] == {"N": "7"}
    assert record[attribute(name, "tk")] == {"N": "1"}
    assert len(record) == 12 + 6


def test_a_window_is_an_attribute_that_steady_limits_do_not_have() -> None:
    """As text, for people who look items up by hand."""
    weekly = Limit.per(5, Unit.WEEK.value, name="w", window=Window("calendar", "UTC", "sunday"))
    steady = Limit.per(5, 1_000, name="s")
    image = Image(Item(NOW, (Bucket(steady, 1, 2), Bucket(weekly, 1, 2))), 7, "p", None)
    record = write_record(Key("e", "r"), image)
    assert record["b_w_wn"] == {"S": "calendar timezone=UTC week_starts=sunday"}
    assert "b_s_wn" not in record
    assert parse_image(record) == image
    record["b_w_wn"] = {"S": "lunar"}
    with pytest.raises(StoreError, match=r"limit 'w'.*'lunar' is not a window") as caught:
        parse_image(record)
    assert not caught.value.transient


def test_a_record_has_what_the_indexes_and_people_need() -> None:
    """Keys of the index of resources, the names as they are, and the cascade."""
    image = Image(Item(NOW, ()), None, "p", Key("project#1", "gpt#4"))
    record = write_record(Key("user#1", "gpt#4"), image)
    assert record == {
        "PK": {"S": "ENTITY#user%231"},
        "SK": {"S": "#BUCKET#gpt%234"},
        "GSI2PK": {"S": "RESOURCE#gpt%234"},
        "GSI2SK": {"S": "BUCKET#user%231"},
        "entity_id": {"S": "user#1"},
        "resource": {"S": "gpt#4"},
        "rf": {"N": str(NOW)},
        "policy": {"S": "p"},
        "policy_ms": {"N": "0"},
        "takes": {"N": "0"},
        "cascade": {"BOOL": True},
        "parent_id": {"S": "project#1"},
    }


@pytest.mark.parametrize(
    ("some", "tolerance_ms", "expires_after_ms"),
    [
        ((Limit.per(5, 60_000),), 600, 120_000 + CLOCKS_APART_MS),
        ((Limit.per(10, 1_000, burst=30),), 30, 6_000 + CLOCKS_APART_MS),
        # The shortest decides what may go unsettled, the longest how long an item is kept.
        (
            (Limit.per(5, 1_000, name="a"), Limit.per(5, 60_000, name="b")),
            10,
            120_000 + CLOCKS_APART_MS,
        ),
        # One that never refills is never full again. One without a burst always is.
        ((Limit.per(0, 1_000, burst=5), Limit.per(5, 1_000, name="b")), 10, None),
        ((Limit.per(0, 1_000), Limit.per(5, 1_000, name="b")), 10, 2_000 + CLOCKS_APART_MS),
        # One that refills at boundaries leaves nothing unsettled, and fills in whole windows.
        (
            (Limit.per(5, 60_000, name="a", burst=11, window=Window()), Limit.per(5, 2_000)),
            20,
            2 * 3 * 60_000 + CLOCKS_APART_MS,
        ),
        ((MONTHLY,), NEVER // 100, 2 * 32 * Unit.DAY.value + CLOCKS_APART_MS),
    ],
)
def test_a_policy_tells_how_long_things_may_last(
    some: tuple[Limit, ...], tolerance_ms: int, expires_after_ms: int | None
) -> None:
    """A hundredth of the shortest fill unsettled; kept for twice the longest, for debts."""
    terms = make_terms(some)
    assert (terms.tolerance_ms, terms.expires_after_ms) == (tolerance_ms, expires_after_ms)


def test_any_difference_is_another_policy() -> None:
    """In a name or a number; but the order of limits is none, nor is the parent."""
    a, b = Limit.per(5, 60_000, name="a"), Limit.per(5, 60_000, name="b")
    others = [
        (a,),
        (b,),
        (a, b._replace(burst=6 * MILLI)),
        (a, b._replace(refill=1)),
        (a, b._replace(period_ms=1)),
        (a, b._replace(capacity=1)),
        (a, b._replace(window=Window())),
        (a, b._replace(window=Window(carry_debt=False))),
        (a, b._replace(window=Window("calendar"), period_ms=Unit.WEEK.value)),
        (a, b._replace(window=Window("calendar", "Asia/Tokyo"), period_ms=Unit.WEEK.value)),
        (a, b._replace(window=Window("calendar", "UTC", "sunday"), period_ms=Unit.WEEK.value)),
    ]
    prints = [make_terms(some).fingerprint for some in [(a, b), *others]]
    prints.append(make_terms((a, b), None, True).fingerprint)
    assert len(set(prints)) == len(prints)
    assert make_terms((b, a)).fingerprint == make_terms((a, b)).fingerprint
    assert make_terms((a, b), Key("p", "r")).fingerprint == make_terms((a, b)).fingerprint


def test_steady_limits_keep_the_fingerprint_that_is_in_their_items() -> None:
    """Otherwise every item would be settled anew after an upgrade, and servers would disagree."""
    some = Limit.per(5, 1_000, name="rpm"), Limit.per(7, 60_000, name="tpm", burst=9)
    assert make_terms(some).fingerprint == "4022269d9f626323"


def test_a_write_that_only_consumes_needs_an_item_of_the_current_windows() -> None:
    """Of the latest of them, or an item that is settled by the tolerance of its steady limits."""
    minutes = Limit.per(5, 60_000, name="minutes", window=Window())
    steady = Limit.per(5, 3_600_000, name="steady")
    assert make_terms((MONTHLY, minutes)).since_ms(NOW) == NOW // 60_000 * 60_000
    assert make_terms((MONTHLY, steady)).since_ms(NOW) == NOW - 36_000
    in_march = int(datetime(2026, 3, 9, tzinfo=UTC).timestamp() * 1000)
    march = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
    assert make_terms((MONTHLY,)).since_ms(in_march) == march


def test_an_item_is_expired_from_the_second_of_its_ttl() -> None:
    """As the conditions say it, which know seconds only."""
    image = Image(Item(NOW, ()), 1_000, "p", None)
    assert not image.is_expired(999_999)
    assert image.is_expired(1_000_000)
    assert not image._replace(expires_s=None).is_expired(2**62)
