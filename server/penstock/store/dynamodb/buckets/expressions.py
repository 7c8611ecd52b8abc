"""Translates writes to DynamoDB: the requests of PutItem and UpdateItem, clause by clause."""

from collections.abc import Iterable

from penstock.store.dynamodb.aws.client import to_json
from penstock.store.dynamodb.buckets.statements import (
    ADD,
    ADD_FROM,
    OR_ELSE,
    REMOVE,
    REQUIRE,
    REQUIRE_ABSENT,
    SET,
    SET_NEW,
    Statement,
    item_of,
    key_of,
    number,
    string,
)
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
    window_text,
    write_record,
)
from penstock.store.dynamodb.items.keys import PK, bucket_key, primary_key


def write_json(write: Write) -> str:
    """The parameters of PutItem or UpdateItem as JSON, without the table."""
    if isinstance(write, Create):
        statement = Statement(item_of(write_record(write.key, write.image)))
        _create(statement, write)
        return statement.encode()
    statement = Statement(key_of(bucket_key(write.key)))
    match write:
        case Consume():
            _consume(statement, write)
        case Settle():
            _settle(statement, write)
        case Upsert():
            _upsert(statement, write)
    return statement.encode()


def _create(statement: Statement, write: Create) -> None:
    statement.add(REQUIRE_ABSENT, PK)
    statement.add(OR_ELSE, "")
    statement.add(REQUIRE["<="], EXPIRES, number(write.now_ms // 1000))


def _consume(statement: Statement, write: Consume) -> None:
    expires_s = write.expires_s
    _require_current(statement, write, expires_s)
    if expires_s is not None:
        statement.add(SET, EXPIRES, number(expires_s))
    if write.takes:
        statement.add(ADD, TAKES, number(write.takes))
    _move(statement, write.moves)


def _require_current(statement: Statement, write: Consume, expires_s: int | None) -> None:
    # This condition fails, too, if there is no item.
    statement.add(REQUIRE["="], POLICY, string(write.terms.fingerprint))
    if write.since_ms is not None:
        statement.add(REQUIRE[">="], REFILLED, number(write.since_ms))
    if write.until_ms is not None:
        statement.add(REQUIRE["<"], REFILLED, number(write.until_ms))
    if expires_s is not None:
        statement.add(REQUIRE[">"], EXPIRES, number(write.now_ms // 1000))


def _upsert(statement: Statement, write: Upsert) -> None:
    statement.add(REQUIRE_ABSENT, PK)
    statement.add(OR_ELSE, "")
    _require_current(statement, write.consume, write.consume.expires_s)
    # Attributes that are plainly SET are the same in the item that is there, because the
    # fingerprint is the same. Only the TTL and the parent may differ, and these are newer here.
    record = write_record(write.key, write.create.image)
    for name in primary_key(write.key):
        del record[name]
    for name in (REFILLED, POLICY_READ):
        statement.add(SET_NEW, name, to_json(record.pop(name)))
    if record.pop(TAKES, None) is not None:
        statement.add(ADD, TAKES, number(write.consume.takes))
    bursts = {limit.name: limit.burst for limit in write.terms.limits}
    for move in write.consume.moves:
        _require_bounds(statement, move)
        for name, start, amount in (
            (attribute(move.limit, TOKENS), bursts[move.limit], move.tokens),
            (attribute(move.limit, CONSUMED), 0, move.consumed),
        ):
            del record[name]
            statement.add(ADD_FROM, name, number(start), number(amount))
    for name, value in record.items():
        statement.add(SET, name, to_json(value))
    if write.terms.parent is None:
        statement.add(REMOVE, PARENT)


def _settle(statement: Statement, write: Settle) -> None:
    statement.add(REQUIRE["="], REFILLED, number(write.seen.item.refilled_ms))
    # The condition on `rf` is not enough: a writer whose clock is behind changes the policy and
    # leaves `rf` as it is.
    statement.add(REQUIRE["="], POLICY, string(write.seen.fingerprint))
    statement.add(SET, REFILLED, number(write.refilled_ms))
    expires_s = write.expires_s
    if expires_s is not None:
        statement.add(SET, EXPIRES, number(expires_s))
    elif write.seen.expires_s is not None:
        statement.add(REMOVE, EXPIRES)
    if write.takes:
        statement.add(ADD, TAKES, number(write.takes))
    _move(statement, write.moves)
    for name, forgiven in write.forgiven:
        if forgiven:
            statement.add(SET, attribute(name, FORGIVEN), number(forgiven))
        else:
            statement.add(REMOVE, attribute(name, FORGIVEN))
    if write.seen.fingerprint != write.terms.fingerprint:
        _bring_to_policy(statement, write)


def _bring_to_policy(statement: Statement, write: Settle) -> None:
    statement.add(SET, POLICY, string(write.terms.fingerprint))
    statement.add(SET, POLICY_READ, number(write.policy_ms))
    parent = write.terms.parent
    statement.add(SET, CASCADE, to_json({"BOOL": parent is not None}))
    if parent is None:
        statement.add(REMOVE, PARENT)
    else:
        statement.add(SET, PARENT, string(parent.entity))
    for limit in write.changed:
        for field, value in zip(PARAMETERS, limit[1:5], strict=True):
            statement.add(SET, attribute(limit.name, field), number(value))
        if limit.window is None:
            statement.add(REMOVE, attribute(limit.name, WINDOW))
        else:
            statement.add(SET, attribute(limit.name, WINDOW), to_json(window_text(limit.window)))
    for bucket in write.added:
        name = bucket.limit.name
        statement.add(REQUIRE_ABSENT, attribute(name, TOKENS))
        for field, stored in bucket_fields(bucket):
            statement.add(SET, attribute(name, field), to_json(stored))
    for name in write.removed:
        for field in (*FIELDS, FORGIVEN, WINDOW, BEFORE):
            statement.add(REMOVE, attribute(name, field))


def _move(statement: Statement, moves: Iterable[Move]) -> None:
    for move in moves:
        _require_bounds(statement, move)
        tokens = attribute(move.limit, TOKENS)
        if move.new_balance is not None:
            statement.add(SET, tokens, number(move.new_balance))
        elif move.tokens:
            statement.add(ADD, tokens, number(move.tokens))
        if move.consumed:
            statement.add(ADD, attribute(move.limit, CONSUMED), number(move.consumed))


def _require_bounds(statement: Statement, move: Move) -> None:
    tokens = attribute(move.limit, TOKENS)
    if move.floor is not None and move.floor == move.ceiling:
        statement.add(REQUIRE["="], tokens, number(move.floor))
        return
    if move.floor is not None:
        statement.add(REQUIRE[">="], tokens, number(move.floor))
    if move.ceiling is not None:
        statement.add(REQUIRE["<="], tokens, number(move.ceiling))
