"""Writes say the same to DynamoDB as they say to the model that holds the laws."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit, Window
from penstock.core.take import Key
from penstock.store.dynamodb.aws.client import parameters_of
from penstock.store.dynamodb.buckets.expressions import write_json
from penstock.store.dynamodb.buckets.sender import BucketSender
from penstock.store.dynamodb.buckets.settling import settle_write
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.buckets.writes import (
    Consume,
    Create,
    Move,
    Settle,
    Upsert,
    Write,
    WritePath,
)
from penstock.store.dynamodb.items.images import TOKENS, Image, attribute
from penstock.store.dynamodb.items.keys import primary_key

from tests.support.tables import new_sender
from tests.unit.store.dynamodb.model import Table

NOW = 1_794_792_817_591
KEY = Key("user", "r")
NUMBERS = count()
"""Each example has an item of its own."""
NAMES = ("", "ttl", "rf", "policy", "a-b.c_d", "SELECT", "x_tk", "ü#%")

limits = st.builds(
    Limit.per,
    st.integers(0, 20),
    st.sampled_from([1_000, 60_000]),
    name=st.sampled_from(NAMES),
    burst=st.integers(0, 30),
    window=st.sampled_from([None, None, Window(), Window(carry_debt=False)]),
)
policies = st.lists(limits, min_size=1, max_size=4, unique_by=lambda limit: limit.name).map(
    lambda some: make_terms(tuple(some))
)
HOUR = 3_600_000
# At the last of these, the items have expired.
moments = st.integers(NOW - 70_000, NOW + 1_000) | st.sampled_from([NOW + HOUR, NOW + 10 * HOUR])
amounts = st.integers(-40 * MILLI, 40 * MILLI)
takes = st.integers(-1, 3)


@st.composite
def creates(draw: st.DrawFn, key: Key) -> Create:
    terms = draw(policies)
    forgiven = st.sampled_from([0, 0, 5 * MILLI])
    buckets = [
        Bucket(limit, draw(amounts), draw(amounts), draw(forgiven)) for limit in terms.limits
    ]
    now_ms = draw(moments)
    item = Item(now_ms, tuple(buckets), takes=draw(takes))
    return Create(WritePath.CREATE, key, terms, item, now_ms)


@st.composite
def consumes(draw: st.DrawFn, key: Key, image: Image) -> Consume:
    names = [bucket.limit.name for bucket in image.item.buckets]
    own = make_terms(tuple(bucket.limit for bucket in image.item.buckets), image.parent)
    bounds = st.none() | amounts
    moves = [Move(name, draw(amounts), draw(amounts), draw(bounds), draw(bounds)) for name in names]
    terms = draw(st.sampled_from([own, own, own, make_terms((Limit.per(1, 1_000),))]))
    near = st.none() | st.integers(-2, 2).map(lambda off: image.item.refilled_ms + off)
    since_ms, until_ms, now_ms = draw(near), draw(near), draw(moments)
    return Consume(
        WritePath.SPECULATIVE, key, terms, tuple(moves), since_ms, now_ms, draw(takes), until_ms
    )


@st.composite
def upserts(draw: st.DrawFn, key: Key, image: Image | None = None) -> Upsert:
    """On an item that is there, mostly under its own terms."""
    terms = draw(policies)
    if image is not None and draw(st.integers(0, 4)):
        terms = make_terms(tuple(bucket.limit for bucket in image.item.buckets))
    terms = replace(terms, parent=draw(st.sampled_from([None, None, Key("project", "r")])))
    moved = {limit.name: draw(amounts) for limit in terms.limits}
    bounds = st.none() | amounts
    moves = [Move(name, moved[name], -moved[name], draw(bounds), draw(bounds)) for name in moved]
    buckets = [
        Bucket(limit, limit.burst + moved[limit.name], -moved[limit.name]) for limit in terms.limits
    ]
    now_ms = draw(moments)
    since_ms = now_ms - draw(st.sampled_from([0, 1_000, 70_000, 20 * HOUR]))
    return Upsert(
        Consume(WritePath.SPECULATIVE, key, terms, tuple(moves), since_ms, now_ms),
        Create(WritePath.CREATE, key, terms, Item(now_ms, tuple(buckets), now_ms), now_ms),
    )


@st.composite
def settles(draw: st.DrawFn, key: Key, image: Image, seen: Image) -> Settle:
    """From what was seen, which may not be what is there."""
    terms = draw(policies)
    if len(image.item.buckets) == 1 and draw(st.booleans()):
        terms = make_terms((image.item.buckets[0].limit._replace(name="another"),))
    moved = [draw(amounts) for _ in terms.limits]
    loose = [-limit.burst for limit in terms.limits], [None] * len(terms.limits)
    bounds = draw(st.sampled_from([None, loose]))
    write = settle_write(
        WritePath.NORMAL, key, terms, draw(st.sampled_from([image, seen])), draw(moments), moved,
        bounds=bounds,
    )  # fmt: skip
    return write._replace(takes=draw(takes))


@pytest.fixture
async def sender(dynamodb_url: str) -> AsyncIterator[BucketSender]:
    async with new_sender(dynamodb_url) as made:
        yield made


@settings(
    max_examples=150,
    deadline=None,
    phases=[Phase.reuse, Phase.generate],  # shrinking would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
async def test_dynamodb_does_what_the_model_says(sender: BucketSender, data: st.DataObject) -> None:
    """Any write on any item: it lands or not, and leaves or shows the same image."""
    key, model = Key(f"user-{next(NUMBERS)}", "r"), Table()
    seen: list[Image] = []
    for _ in range(8):
        image = model.images.get(key)
        write: Write
        if image is None:
            write = data.draw(creates(key) | upserts(key))
        else:
            seen.append(image)
            old = data.draw(st.sampled_from(seen))
            write = data.draw(
                creates(key) | consumes(key, image) | upserts(key, image) | settles(key, image, old)
            )
        assert await sender.write([write]) == model.write((write,))
        assert (await sender.read([key]))[key] == model.images.get(key)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_an_item_lasts_until_it_is_full_also_where_that_is_not_worked_out(
    data: st.DataObject,
) -> None:
    """Nearly all settled items owe nothing. Their TTL takes a short way, to the same time."""
    created = data.draw(creates(KEY)).image
    own = make_terms(tuple(bucket.limit for bucket in created.item.buckets), created.parent)
    write = data.draw(settles(KEY, created, created))
    if data.draw(st.booleans()):
        moved = [data.draw(amounts) for _ in own.limits]
        write = settle_write(WritePath.NORMAL, KEY, own, created, data.draw(moments), moved)
    full_at_ms = write.applied(created).item.full_at_ms()
    assert write.expires_s == write.terms.expires_s(write.now_ms, full_at_ms)


@pytest.mark.parametrize("limits_count", [1, 10])
def test_attributes_are_aliased_by_position(limits_count: int) -> None:
    """Never by a limit's name, and the expressions stay far below what DynamoDB takes (4 KB)."""
    some = tuple(
        Limit.per(5, 60_000, name=f"tokens per minute, no. {n}") for n in range(limits_count)
    )
    moves = tuple(Move(limit.name, -MILLI, MILLI, MILLI, 5 * MILLI) for limit in some)
    terms, key = make_terms(some), Key("user", "r")
    full = Item(NOW, tuple(Bucket(limit, 4 * MILLI, MILLI) for limit in some))
    consume = Consume(WritePath.SPECULATIVE, key, terms, moves, NOW, NOW)
    upsert = Upsert(consume, Create(WritePath.CREATE, key, terms, full, NOW))
    for write, names in ((consume, 3 + 2 * limits_count), (upsert, 12 + 6 * limits_count)):
        parameters = parameters_of(write_json(write))
        aliases = parameters["ExpressionAttributeNames"]
        assert set(aliases) == {f"#n{n}" for n in range(names)}
        assert len(set(aliases.values())) == len(aliases)
        for expression in (parameters["UpdateExpression"], parameters["ConditionExpression"]):
            assert "minute" not in expression
            assert len(expression) < 3_072


@settings(max_examples=300, deadline=None)
@given(st.text(), st.text(), st.text(), st.integers())
def test_a_request_says_what_it_was_given(
    entity: str, resource: str, name: str, amount: int
) -> None:
    """Whatever characters a key or the name of a limit has: requests are put together as text."""
    limit, key = Limit.per(5, 60_000, name=name), Key(entity, resource)
    moves = (Move(name, -amount, amount, amount),)
    write = Consume(WritePath.SPECULATIVE, key, make_terms((limit,)), moves, NOW, NOW)
    parameters = parameters_of(write_json(write))
    assert parameters["Key"] == primary_key(key)
    assert set(parameters["ExpressionAttributeNames"].values()) >= {attribute(name, TOKENS)}
    assert {"N": str(amount)} in parameters["ExpressionAttributeValues"].values()
    gaps = re.findall(
        ":v[0-9]+", f"{parameters['UpdateExpression']} {parameters['ConditionExpression']}"
    )
    assert sorted(gaps) == sorted(parameters["ExpressionAttributeValues"])
