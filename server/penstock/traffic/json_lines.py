"""A request as a line of JSON: written by the recorder, read for a simulation.

`{"time": …, "domain": "d", "descriptors": [{"entries": [["user", "bob"]], "hits": 3}]}`

Lines with the same request differ only in the time. The time comes first, so the rest of a line is
the key of a cache: most lines are never parsed.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from penstock.core.limits import UINT32_MAX, Unit
from penstock.core.request import MAX_DESCRIPTORS, MAX_ENTRIES, Descriptor, Override, Request
from penstock.traffic.times import check_time_ms, parse_time_ms

MAX_HITS: Final = 2**64 - 1
"""On the wire, the amount of a descriptor is a uint64."""

REQUEST_FIELDS: Final = ("time", "domain", "descriptors", "hits_addend")
DESCRIPTOR_FIELDS: Final = ("entries", "hits", "refund", "limit")
LIMIT_FIELDS: Final = ("requests_per_unit", "unit")

_UNITS: Final = {unit.name.lower(): unit for unit in Unit if unit is not Unit.UNKNOWN}
_TIME_FIRST: Final = re.compile(rb'\{\s*"time"\s*:\s*(?:"([^"\\]*)"|([0-9]{1,19}))\s*,\s*')

Hide = Callable[[str, str], str]
"""Takes the key and the value of an entry, and returns the value to write."""


def write_request(request: Request, hide: Hide | None = None) -> str:
    """The end of a line: all but the time and what stands before it."""
    fields: dict[str, Any] = {
        "domain": request.domain,
        "descriptors": [_descriptor_fields(one, hide) for one in request.descriptors],
    }
    if request.hits:
        fields["hits_addend"] = request.hits
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))[1:]


def write_line(time_ms: int, rest: str) -> str:
    return f'{{"time":{time_ms},{rest}\n'


def _descriptor_fields(descriptor: Descriptor, hide: Hide | None) -> dict[str, Any]:
    entries: Any = descriptor.entries
    if hide is not None:
        entries = [(key, hide(key, value)) for key, value in entries]
    fields: dict[str, Any] = {"entries": entries}
    if descriptor.hits is not None:
        fields["hits"] = descriptor.hits
    if descriptor.refund:
        fields["refund"] = True
    override = descriptor.override
    if override is not None:
        unit = override.unit.name.lower()
        fields["limit"] = {"requests_per_unit": override.requests_per_unit, "unit": unit}
    return fields


def split_line(line: bytes) -> tuple[int, bytes]:
    """The time of a line, and the rest. `read_request` reads the rest. ValueError if it fails."""
    found = _TIME_FIRST.match(line)
    if found is not None:
        text, number = found.groups()
        time_ms = check_time_ms(int(number)) if text is None else parse_time_ms(text.decode())
        return time_ms, line[found.end() :]
    fields = _load(line)
    if "time" not in fields:
        raise ValueError("time is missing")
    time = fields.pop("time")
    if isinstance(time, str):
        time_ms = parse_time_ms(time)
    elif type(time) is int:
        time_ms = check_time_ms(time)
    else:
        raise ValueError("time must be a text, or a whole number of milliseconds")
    return time_ms, json.dumps(fields).encode()[1:]


def read_request(rest: bytes) -> Request:
    """Read the rest of a line. ValueError says what is wrong."""
    fields = _load(b"{" + rest)
    if "time" in fields:
        raise ValueError("time is there twice")
    _check_fields(fields, "the request", REQUEST_FIELDS)
    descriptors = fields.get("descriptors")
    if not isinstance(descriptors, list):
        raise ValueError("descriptors must be a list")
    hits = read_count(fields.get("hits_addend", 0), "hits_addend", UINT32_MAX)
    decoded = tuple([_read_descriptor(one) for one in descriptors])
    return check_request(Request(_text(fields.get("domain"), "domain"), decoded, hits))


def check_request(request: Request) -> Request:
    """ValueError if a server would refuse the request."""
    if not request.domain:
        raise ValueError("domain is empty")
    if not request.descriptors:
        raise ValueError("there is no descriptor")
    entries = sum([len(descriptor.entries) for descriptor in request.descriptors])
    for count, most, what in (
        (len(request.descriptors), MAX_DESCRIPTORS, "descriptors"),
        (entries, MAX_ENTRIES, "entries"),
    ):
        if count > most:
            raise ValueError(f"{count} {what} in one request, at most {most}")
    return request


def read_count(value: Any, what: str, most: int = MAX_HITS) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{what} must be a whole number from 0 to {most}")
    return value


def check_text(text: str, what: str) -> str:
    """ValueError for text that is not UTF-8: gRPC carries only UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise ValueError(f"{what} is not UTF-8") from exc
    return text


def _load(text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"not JSON: {' '.join(str(exc).split())}") from exc
    if not isinstance(fields, dict):
        raise ValueError("a line must be an object")
    return fields


def _read_descriptor(fields: Any) -> Descriptor:
    if not isinstance(fields, dict):
        raise ValueError("a descriptor must be an object")
    _check_fields(fields, "a descriptor", DESCRIPTOR_FIELDS)
    entries = fields.get("entries")
    if not isinstance(entries, list):
        raise ValueError("entries must be a list")
    hits = fields.get("hits")
    refund = fields.get("refund", False)
    if not isinstance(refund, bool):
        raise ValueError("refund must be true or false")
    return Descriptor(
        tuple([_read_entry(entry) for entry in entries]),
        None if hits is None else read_count(hits, "hits"),
        refund,
        _read_override(fields.get("limit")),
    )


def _read_entry(entry: Any) -> tuple[str, str]:
    """A pair, or an object with key and value, as on the wire."""
    if isinstance(entry, dict):
        _check_fields(entry, "an entry", ("key", "value"))
        entry = [entry.get("key"), entry.get("value", "")]
    if not isinstance(entry, list) or len(entry) != 2:
        raise ValueError("an entry must be a pair: [KEY, VALUE]")
    key, value = entry
    return _text(key, "a key"), _text(value, "a value")


def _read_override(fields: Any) -> Override | None:
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise ValueError("limit must be an object")
    _check_fields(fields, "limit", LIMIT_FIELDS)
    unit = _UNITS.get(str(fields.get("unit")).lower())
    if unit is None:
        raise ValueError(f"the unit of limit must be one of {', '.join(_UNITS)}")
    count = read_count(fields.get("requests_per_unit"), "requests_per_unit", UINT32_MAX)
    return Override(count, unit)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a text")
    return check_text(value, what)


def _check_fields(fields: Mapping[str, Any], what: str, known: Collection[str]) -> None:
    for name in fields:
        if name not in known:
            raise ValueError(f"{what}: unknown field '{name}'; known are {', '.join(known)}")
