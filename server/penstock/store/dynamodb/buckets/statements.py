"""The text of a request from its clauses: what is required of an item, and what is changed.

The texts of the expressions follow from the clauses without their values. Most writes have the same
such shape, so the text of a shape is made once, and cached. A request is this text with its values
filled in: no dictionaries are made, and nothing is encoded.

Attributes are always aliased by position, never by name, because a limit may have any name.
"""

from collections.abc import Iterator
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Final, NamedTuple

from penstock.store.dynamodb.aws.client import to_json
from penstock.store.dynamodb.items.keys import PK, SK, Primary

SHAPES_KEPT: Final = 1_000
"""A shape is that of a kind of write and the names of the limits: there are few of them."""


class Kind:
    """A kind of clause: where it goes, and its text for an attribute `n` and values `v`, `w`.

    Kinds are compared by identity: every write looks up the text of its shape.
    """

    __slots__ = ("section", "text", "values")

    def __init__(self, section: str, text: str) -> None:
        self.section = section
        self.text = text
        self.values = ("{v}" in text) + ("{w}" in text)
        """How many values it has."""


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


class Statement:
    """The clauses of a request, one after the other."""

    __slots__ = ("_shape", "_texts")

    def __init__(self, target: str) -> None:
        """`target` is the member that says which item, as JSON: see `key_of` and `item_of`."""
        self._shape: list[Kind | str] = []
        self._texts = [target]

    def add(self, kind: Kind, attribute: str, *values: str) -> None:
        """Add a clause. Its values are JSON."""
        self._shape += (kind, attribute)
        self._texts += values

    def encode(self) -> str:
        return _template(tuple(self._shape)) % tuple(self._texts)


def key_of(primary: Primary) -> str:
    return (
        f'"Key":{{"{PK}":{{"S":{quote(primary.partition)}}},"{SK}":{{"S":{quote(primary.sort)}}}}}'
    )


def item_of(record: dict[str, Any]) -> str:
    return f'"Item":{to_json(record)}'


def number(value: int) -> str:
    return f'{{"N":"{value}"}}'


def string(text: str) -> str:
    return f'{{"S":{quote(text)}}}'


@lru_cache(maxsize=SHAPES_KEPT)
def _template(shape: tuple[Kind | str, ...]) -> str:
    """The text of a request, with a gap for its target and for each of its values."""
    clauses = list(_clauses(shape))
    members = to_json({"ReturnValuesOnConditionCheckFailure": "ALL_OLD", **_expressions(clauses)})
    gaps = ",".join([f'":v{i}":%s' for i in range(sum([kind.values for kind, _ in clauses]))])
    fixed = members[1:-1].replace("%", "%%")
    return f'{{%s,{fixed},"ExpressionAttributeValues":{{{gaps}}}}}'


class _Clause(NamedTuple):
    kind: Kind
    attribute: str


def _clauses(shape: tuple[Kind | str, ...]) -> Iterator[_Clause]:
    for kind, attribute in zip(shape[::2], shape[1::2], strict=True):
        assert isinstance(kind, Kind)  # noqa: S101 - a fault of ours
        assert isinstance(attribute, str)  # noqa: S101 - a fault of ours
        yield _Clause(kind, attribute)


def _expressions(clauses: list[_Clause]) -> dict[str, Any]:
    """The expressions, and the names of their attributes. Values are counted in order."""
    names: dict[str, str] = {}
    sections: dict[str, list[str]] = {"SET": [], "ADD": [], "REMOVE": [], "IF": []}
    enough: list[str] = []
    count = 0
    for kind, attribute in clauses:
        if kind is OR_ELSE:
            enough, sections["IF"] = sections["IF"], []
            continue
        alias = names.setdefault(attribute, f"#n{len(names)}")
        text = kind.text.format(n=alias, v=f":v{count}", w=f":v{count + 1}")
        sections[kind.section].append(text)
        count += kind.values
    condition = " AND ".join(sections.pop("IF"))
    if enough:
        condition = f"{' AND '.join(enough)} OR ({condition})"
    update = " ".join(f"{word} {', '.join(parts)}" for word, parts in sections.items() if parts)
    return {
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {alias: name for name, alias in names.items()},
        **({"UpdateExpression": update} if update else {}),
    }
