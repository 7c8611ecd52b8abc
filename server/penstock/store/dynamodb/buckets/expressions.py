"""Translates writes to DynamoDB: the parameters of PutItem and UpdateItem.

A write becomes a list of clauses: what is required, and what is changed. The texts of the
expressions follow from the clauses without their values. Most writes have the same such shape, so
the texts of a shape are made once, and cached.

Attributes are always aliased by position, never by name, because a limit may have any name.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from penstock.store.dynamodb.buckets.writes import Consume, Create, Move, Settle, Upsert, Write
from penstock.store.dynamodb.items.images import (
    BEFORE,
    CASCADE,
    CONSUMED,
    EXPIRES,
    FIELDS,
    FORGIVEN,
    PARAMETERS,
    PARENT,
    POLICY,
    POLICY_READ,
    REFILLED,
    TAKES,
    TOKENS,
    WINDOW,
    attribute,
    bucket_fields,
    number,
    window_text,
    write_record,
)
from penstock.store.dynamodb.items.keys import PK, primary_key

Parameters = dict[str, Any]

SHAPES_KEPT: Final = 1_000
"""A shape is that of a kind of write and the names of the limits: there are few of them."""


class Kind(NamedTuple):
    """A kind of clause: where it goes, and its text for an attribute `n` and values `v`, `w`."""

    section: str
    text: str


REQUIRE: Final = {
    comparison: Kind("IF", f"{{n}} {comparison} {{v}}")
    for comparison in ("=", ">=", "<=", ">", "<")
}
REQUIRE_ABSENT: Final = Kind("IF", "attribute_not_exists({n})")
OR_ELSE: Final = Kind("OR", "")
"""What is required before this clause is enough. Otherwise all that comes after it is required."""
SET: Final = Kind("SET", "{n} = {v}")
SET_NEW: Final = Kind("SET", "{n} = if_not_exists({n}, {v})")
"""Sets the attribute if the item does not have it."""
ADD: Final = Kind("ADD", "{n} {v}")
ADD_FROM: Final = Kind("SET", "{n} = if_not_exists({n}, {v}) + {w}")
"""Adds `w` to a number. If the item does not have the number, it starts at `v`."""
REMOVE: Final = Kind("REMOVE", "{n}")

Clause = tuple[Kind, str, tuple[Any, ...]]
"""Its kind, its attribute, and its values."""


def write_parameters(write: Write) -> Parameters:
    """The parameters of PutItem or UpdateItem, alone or in a transaction, without the table."""
    match write:
        case Create():
            parameters: Parameters = {"Item": write_record(write.key, write.image)}
            clauses = _create(write)
        case Settle():
            parameters, clauses = {"Key": primary_key(write.key)}, _settle(write)
        case Upsert():
            parameters, clauses = {"Key": primary_key(write.key)}, _upsert(write)
        case Consume():
            parameters, clauses = {"Key": primary_key(write.key)}, _consume(write)
    shape: list[tuple[Kind, str]] = []
    values: list[Any] = []
    for kind, name, given in clauses:
        shape.append((kind, name))
        values += given
    parameters["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    parameters.update(_texts(tuple(shape)))
    parameters["ExpressionAttributeValues"] = dict(zip(_aliases(len(values)), values, strict=True))
    return parameters


@lru_cache
def _aliases(count: int) -> tuple[str, ...]:
    return tuple(f":v{i}" for i in range(count))


@lru_cache(maxsize=SHAPES_KEPT)
def _texts(shape: tuple[tuple[Kind, str], ...]) -> Parameters:
    """The expressions, and the names of their attributes. Values are counted in order."""
    names: dict[str, str] = {}
    sections: dict[str, list[str]] = {"SET": [], "ADD": [], "REMOVE": [], "IF": []}
    enough: list[str] = []
    count = 0
    for (section, text), name in shape:
        if section == "OR":
            enough, sections["IF"] = sections["IF"], []
            continue
        alias = names.setdefault(name, f"#n{len(names)}")
        sections[section].append(text.format(n=alias, v=f":v{count}", w=f":v{count + 1}"))
        count += ("{v}" in text) + ("{w}" in text)
    condition = " AND ".join(sections.pop("IF"))
    if enough:
        condition = f"{' AND '.join(enough)} OR ({condition})"
    update = " ".join(f"{word} {', '.join(parts)}" for word, parts in sections.items() if parts)
    return {
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {alias: name for name, alias in names.items()},
        **({"UpdateExpression": update} if update else {}),
    }


def _create(write: Create) -> Iterator[Clause]:
    yield REQUIRE_ABSENT, PK, ()
    yield OR_ELSE, "", ()
    yield REQUIRE["<="], EXPIRES, (number(write.now_ms // 1000),)


def _consume(write: Consume) -> Iterator[Clause]:
    yield from _require_current(write)
    if write.expires_s is not None:
        yield SET, EXPIRES, (number(write.expires_s),)
    if write.takes:
        yield ADD, TAKES, (number(write.takes),)
    yield from _move(write.moves)


def _require_current(write: Consume) -> Iterator[Clause]:
    # This condition fails, too, if there is no item.
    yield REQUIRE["="], POLICY, ({"S": write.terms.fingerprint},)
    if write.since_ms is not None:
        yield REQUIRE[">="], REFILLED, (number(write.since_ms),)
    if write.until_ms is not None:
        yield REQUIRE["<"], REFILLED, (number(write.until_ms),)
    if write.expires_s is not None:
        yield REQUIRE[">"], EXPIRES, (number(write.now_ms // 1000),)


def _upsert(write: Upsert) -> Iterator[Clause]:
    yield REQUIRE_ABSENT, PK, ()
    yield OR_ELSE, "", ()
    yield from _require_current(write.consume)
    # Attributes that are plainly SET are the same in the item that is there, because the
    # fingerprint is the same. Only the TTL and the parent may differ, and these are newer here.
    record = write_record(write.key, write.create.image)
    for name in primary_key(write.key):
        del record[name]
    for name in (REFILLED, POLICY_READ):
        yield SET_NEW, name, (record.pop(name),)
    if record.pop(TAKES, None) is not None:
        yield ADD, TAKES, (number(write.consume.takes),)
    bursts = {limit.name: limit.burst for limit in write.terms.limits}
    for move in write.consume.moves:
        yield from _require_bounds(move)
        for name, start, amount in (
            (attribute(move.limit, TOKENS), bursts[move.limit], move.tokens),
            (attribute(move.limit, CONSUMED), 0, move.consumed),
        ):
            del record[name]
            yield ADD_FROM, name, (number(start), number(amount))
    for name, value in record.items():
        yield SET, name, (value,)
    if write.terms.parent is None:
        yield REMOVE, PARENT, ()


def _settle(write: Settle) -> Iterator[Clause]:
    yield REQUIRE["="], REFILLED, (number(write.seen.item.refilled_ms),)
    # The condition on `rf` is not enough: a writer whose clock is behind changes the policy and
    # leaves `rf` as it is.
    yield REQUIRE["="], POLICY, ({"S": write.seen.fingerprint},)
    yield SET, REFILLED, (number(write.refilled_ms),)
    expires_s = write.expires_s
    if expires_s is not None:
        yield SET, EXPIRES, (number(expires_s),)
    elif write.seen.expires_s is not None:
        yield REMOVE, EXPIRES, ()
    if write.takes:
        yield ADD, TAKES, (number(write.takes),)
    yield from _move(write.moves)
    for name, forgiven in write.forgiven:
        if forgiven:
            yield SET, attribute(name, FORGIVEN), (number(forgiven),)
        else:
            yield REMOVE, attribute(name, FORGIVEN), ()
    if write.seen.fingerprint != write.terms.fingerprint:
        yield from _bring_to_policy(write)


def _bring_to_policy(write: Settle) -> Iterator[Clause]:
    yield SET, POLICY, ({"S": write.terms.fingerprint},)
    yield SET, POLICY_READ, (number(write.policy_ms),)
    parent = write.terms.parent
    yield SET, CASCADE, ({"BOOL": parent is not None},)
    if parent is None:
        yield REMOVE, PARENT, ()
    else:
        yield SET, PARENT, ({"S": parent.entity},)
    for limit in write.changed:
        for field, value in zip(PARAMETERS, limit[1:5], strict=True):
            yield SET, attribute(limit.name, field), (number(value),)
        if limit.window is None:
            yield REMOVE, attribute(limit.name, WINDOW), ()
        else:
            yield SET, attribute(limit.name, WINDOW), (window_text(limit.window),)
    for bucket in write.added:
        name = bucket.limit.name
        yield REQUIRE_ABSENT, attribute(name, TOKENS), ()
        for field, stored in bucket_fields(bucket):
            yield SET, attribute(name, field), (stored,)
    for name in write.removed:
        for field in (*FIELDS, FORGIVEN, WINDOW, BEFORE):
            yield REMOVE, attribute(name, field), ()


def _move(moves: Iterable[Move]) -> Iterator[Clause]:
    for move in moves:
        yield from _require_bounds(move)
        tokens = attribute(move.limit, TOKENS)
        if move.new_balance is not None:
            yield SET, tokens, (number(move.new_balance),)
        elif move.tokens:
            yield ADD, tokens, (number(move.tokens),)
        if move.consumed:
            yield ADD, attribute(move.limit, CONSUMED), (number(move.consumed),)


def _require_bounds(move: Move) -> Iterator[Clause]:
    tokens = attribute(move.limit, TOKENS)
    if move.floor is not None and move.floor == move.ceiling:
        yield REQUIRE["="], tokens, (number(move.floor),)
        return
    if move.floor is not None:
        yield REQUIRE[">="], tokens, (number(move.floor),)
    if move.ceiling is not None:
        yield REQUIRE["<="], tokens, (number(move.ceiling),)
