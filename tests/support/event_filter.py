"""What AWS Lambda does with the filters of an event source: which records reach the function."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tests.support.cloudformation import Template

Record: TypeAlias = Mapping[str, Any]


def delivered(template: Template, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records that the event source of a template hands to its function."""
    filters = template.part("Resources", "Source", "Properties", "FilterCriteria", "Filters")
    patterns = [json.loads(one["Pattern"]) for one in filters]
    return [record for record in records if any(matches(one, record) for one in patterns)]


def matches(pattern: Record, record: Record) -> bool:
    """Whether a record has all that a pattern names. A list holds the choices for one value."""
    return all(
        _is_one_of(wanted, record.get(name))
        if isinstance(wanted, list)
        else matches(wanted, record.get(name, {}))
        for name, wanted in pattern.items()
    )


def _is_one_of(choices: Sequence[Any], value: Any) -> bool:
    return any(_is(choice, value) for choice in choices)


def _is(choice: Any, value: Any) -> bool:
    if not isinstance(choice, dict):
        return bool(choice == value)
    # Only what AWS documents for event sources: `anything-but` with a prefix is for event buses.
    match choice:
        case {"prefix": str(prefix)}:
            return isinstance(value, str) and value.startswith(prefix)
        case {"exists": bool(exists)}:
            return exists is (value is not None and not isinstance(value, dict | list))
    raise NotImplementedError(choice)
