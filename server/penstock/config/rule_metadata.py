"""The `metadata` of a descriptor, which an answer to Envoy can contain."""

import math
from typing import Any, Final

import yaml

from penstock.config.yaml_nodes import YamlFile, construct, is_null

MAX_NESTING: Final = 24
"""Each level is three nested messages, and Envoy refuses more than a hundred of them."""


def read_metadata(file: YamlFile, node: yaml.Node | None) -> dict[str, Any]:
    if node is None or is_null(node):
        return {}
    try:
        value = construct(node)
        if not isinstance(value, dict):
            raise TypeError("it must be a map")
        _check(value, 1)
    except yaml.MarkedYAMLError as exc:
        file.error(node, f"error parsing metadata: {exc.problem}")
        return {}
    except (TypeError, ValueError, OverflowError) as exc:
        file.error(node, f"error parsing metadata: {exc}")
        return {}
    return value


def _check(value: object, level: int) -> None:
    if level > MAX_NESTING:
        raise ValueError(f"nested deeper than {MAX_NESTING} levels")
    match value:
        case dict():
            for inner in value.values():
                _check(inner, level + 1)
        case list():
            for inner in value:
                _check(inner, level + 1)
        case int() | float():
            # Protobuf's Struct has only doubles, and JSON has no infinity.
            if not math.isfinite(value):
                raise ValueError(f"{value!r} is not a finite number")
        case None | str():
            pass
        case _:
            raise TypeError(f"{value!r} is neither text, number, true, false, list nor map")
