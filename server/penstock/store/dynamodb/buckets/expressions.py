"""Translates writes to DynamoDB: the parameters of PutItem and UpdateItem.

Attributes are always aliased by position, never by name, because a limit may have any name.
"""

from typing import Any

from penstock.store.dynamodb.buckets.writes import Consume, Create, Move, Settle, Upsert, Write
from penstock.store.dynamodb.items.images import (
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
    TOKENS,
    attribute,
    bucket_fields,
    number,
    write_record,
)
from penstock.store.dynamodb.items.keys import PK, primary_key

Parameters = dict[str, Any]


def write_parameters(write: Write) -> Parameters:
    """The parameters of PutItem or UpdateItem, alone or in a transaction, without the table."""
    expression = _Expression()
    if isinstance(write, Create):
        action = {"Item": write_record(write.key, write.image)}
        _require_absence(expression, write)
    else:
        action = {"Key": primary_key(write.key)}
        if isinstance(write, Settle):
            _settle(expression, write)
        elif isinstance(write, Upsert):
            _upsert(expression, write)
        else:
            _consume(expression, write)
    return action | {
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        **expression.parameters(),
    }


class _Expression:
    """An update and its condition while they are put together."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self.sets: list[str] = []
        self.adds: list[str] = []
        self.removes: list[str] = []
        self.conditions: list[str] = []

    def name(self, attribute: str) -> str:
        return self._names.setdefault(attribute, f"#n{len(self._names)}")

    def value(self, value: Any) -> str:
        alias = f":v{len(self._values)}"
        self._values[alias] = value
        return alias

    def set(self, attribute: str, value: Any) -> None:
        self.sets.append(f"{self.name(attribute)} = {self.value(value)}")

    def add(self, attribute: str, amount: int) -> None:
        if amount:
            self.adds.append(f"{self.name(attribute)} {self.value(number(amount))}")

    def set_new(self, attribute: str, value: Any) -> None:
        """Set the attribute if the item does not have it."""
        name = self.name(attribute)
        self.sets.append(f"{name} = if_not_exists({name}, {self.value(value)})")

    def add_from(self, start: int, attribute: str, amount: int) -> None:
        """Add to a number. If the item does not have it, it starts at `start`."""
        name, first = self.name(attribute), self.value(number(start))
        added = self.value(number(amount))
        self.sets.append(f"{name} = if_not_exists({name}, {first}) + {added}")

    def remove(self, attribute: str) -> None:
        self.removes.append(self.name(attribute))

    def require(self, attribute: str, comparison: str, value: Any) -> None:
        self.conditions.append(f"{self.name(attribute)} {comparison} {self.value(value)}")

    def parameters(self) -> Parameters:
        clauses = (("SET", self.sets), ("ADD", self.adds), ("REMOVE", self.removes))
        update = " ".join(f"{word} {', '.join(parts)}" for word, parts in clauses if parts)
        parameters: Parameters = {
            "ConditionExpression": " AND ".join(self.conditions),
            "ExpressionAttributeNames": {alias: name for name, alias in self._names.items()},
            "ExpressionAttributeValues": self._values,
        }
        return parameters | ({"UpdateExpression": update} if update else {})


def _require_absence(expression: _Expression, write: Create) -> None:
    now = expression.value(number(write.now_ms // 1000))
    absent = f"attribute_not_exists({expression.name(PK)})"
    expression.conditions.append(f"({absent} OR {expression.name(EXPIRES)} <= {now})")


def _consume(expression: _Expression, write: Consume) -> None:
    _require_current(expression, write)
    if write.expires_s is not None:
        expression.set(EXPIRES, number(write.expires_s))
    _move(expression, write.moves)


def _require_current(expression: _Expression, write: Consume) -> None:
    # This condition fails, too, if there is no item.
    expression.require(POLICY, "=", {"S": write.terms.fingerprint})
    if write.since_ms is not None:
        expression.require(REFILLED, ">=", number(write.since_ms))
    if write.expires_s is not None:
        expression.require(EXPIRES, ">", number(write.now_ms // 1000))


def _upsert(expression: _Expression, write: Upsert) -> None:
    _require_current(expression, write.consume)
    for move in write.consume.moves:
        _require_bounds(expression, move)
    is_current = " AND ".join(expression.conditions)
    absent = f"attribute_not_exists({expression.name(PK)})"
    expression.conditions = [f"{absent} OR ({is_current})"]
    # Attributes that are plainly SET are the same in the item that is there, because the
    # fingerprint is the same. Only the TTL and the parent may differ, and these are newer here.
    record = write_record(write.key, write.create.image)
    for name in primary_key(write.key):
        del record[name]
    for name in (REFILLED, POLICY_READ):
        expression.set_new(name, record.pop(name))
    bursts = {limit.name: limit.burst for limit in write.terms.limits}
    for move in write.consume.moves:
        tokens, consumed = attribute(move.limit, TOKENS), attribute(move.limit, CONSUMED)
        del record[tokens], record[consumed]
        expression.add_from(bursts[move.limit], tokens, move.tokens)
        expression.add_from(0, consumed, move.consumed)
    for name, value in record.items():
        expression.set(name, value)
    if write.terms.parent is None:
        expression.remove(PARENT)


def _settle(expression: _Expression, write: Settle) -> None:
    expression.require(REFILLED, "=", number(write.seen.item.refilled_ms))
    # The condition on `rf` is not enough: a writer whose clock is behind changes the policy and
    # leaves `rf` as it is.
    expression.require(POLICY, "=", {"S": write.seen.fingerprint})
    expression.set(REFILLED, number(write.refilled_ms))
    if write.expires_s is not None:
        expression.set(EXPIRES, number(write.expires_s))
    elif write.seen.expires_s is not None:
        expression.remove(EXPIRES)
    _move(expression, write.moves)
    for name, forgiven in write.forgiven:
        if forgiven:
            expression.set(attribute(name, FORGIVEN), number(forgiven))
        else:
            expression.remove(attribute(name, FORGIVEN))
    if write.seen.fingerprint != write.terms.fingerprint:
        _bring_to_policy(expression, write)


def _bring_to_policy(expression: _Expression, write: Settle) -> None:
    expression.set(POLICY, {"S": write.terms.fingerprint})
    expression.set(POLICY_READ, number(write.policy_ms))
    parent = write.terms.parent
    expression.set(CASCADE, {"BOOL": parent is not None})
    if parent is None:
        expression.remove(PARENT)
    else:
        expression.set(PARENT, {"S": parent.entity})
    for limit in write.changed:
        for field, value in zip(PARAMETERS, limit[1:5], strict=True):
            expression.set(attribute(limit.name, field), number(value))
    for bucket in write.added:
        name = bucket.limit.name
        alias = expression.name(attribute(name, TOKENS))
        expression.conditions.append(f"attribute_not_exists({alias})")
        for field, value in bucket_fields(bucket):
            expression.set(attribute(name, field), number(value))
    for name in write.removed:
        for field in (*FIELDS, FORGIVEN):
            expression.remove(attribute(name, field))


def _move(expression: _Expression, moves: tuple[Move, ...]) -> None:
    for move in moves:
        _require_bounds(expression, move)
        tokens = attribute(move.limit, TOKENS)
        if move.new_balance is None:
            expression.add(tokens, move.tokens)
        else:
            expression.set(tokens, number(move.new_balance))
        expression.add(attribute(move.limit, CONSUMED), move.consumed)


def _require_bounds(expression: _Expression, move: Move) -> None:
    tokens = attribute(move.limit, TOKENS)
    if move.floor is not None and move.floor == move.ceiling:
        expression.require(tokens, "=", number(move.floor))
        return
    if move.floor is not None:
        expression.require(tokens, ">=", number(move.floor))
    if move.ceiling is not None:
        expression.require(tokens, "<=", number(move.ceiling))
