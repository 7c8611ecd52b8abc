"""Turns protobuf bytes into requests and rules, and answers into bytes.

The law of this file: no other file imports generated code.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError

from penstock._proto import base_pb2, discovery_pb2, leases_pb2, rls_conf_pb2, rls_pb2
from penstock.core.decision import Decision, Status
from penstock.core.foreign_text import show
from penstock.core.lease import DOMAIN, Balances, LeaseAsk, Recorded, Refused
from penstock.core.limits import UINT32_MAX, Unit
from penstock.core.mapping import safe_name
from penstock.core.request import MAX_DESCRIPTORS, MAX_ENTRIES, Descriptor, Override, Request
from penstock.core.take import Key
from penstock.errors import InvalidRequestError
from penstock.service.answer import Answer
from penstock.transport.plain_rules import plain_rules

SERVICE: Final = rls_pb2.DESCRIPTOR.services_by_name["RateLimitService"].full_name
METHOD: Final = "ShouldRateLimit"
LEASES: Final = leases_pb2.DESCRIPTOR.services_by_name["Leases"].full_name
PEEK: Final = "penstock-peek"
"""A header of clients that only look. A check without this header makes a rule metered."""

CACHED_STATUSES: Final = 4
CACHED_NAMES: Final = 256
"""Only short answers are cached. Longer answers are rare, repeat less, and would make the cache
large. Clients choose some names of limits. With these bounds the cache has at most about 30 MB."""

MAX_OBJECTS: Final = 1 + 2 * MAX_DESCRIPTORS + MAX_ENTRIES
"""The objects of a request in JSON: the request, its descriptors, their overrides and entries."""

MAX_FIELDS: Final = 16
"""The fields of an object in JSON. The largest has four, and each has two possible names."""

_OK: Final = rls_pb2.RateLimitResponse.OK
_OVER_LIMIT: Final = rls_pb2.RateLimitResponse.OVER_LIMIT
_OVER_LIMIT_BYTES: Final = rls_pb2.RateLimitResponse(overall_code=_OVER_LIMIT).SerializeToString()
_DEEPEST: Final = -(2**63)
"""The deepest debt that an answer to a lease can show. A debt without a bound may be deeper."""

_REFUSED_BYTES: Final = leases_pb2.LeaseResponse(refused={}).SerializeToString()[:1]
_RATE_LIMIT: Final = rls_pb2.RateLimitResponse.RateLimit
_WIRE_UNITS: Final[dict[Unit, Any]] = {u: _RATE_LIMIT.Unit.Value(u.name) for u in Unit}
_UNITS: Final = {number: unit for unit, number in _WIRE_UNITS.items()}
_OVERRIDE_UNITS: Final = ", ".join(unit.name for unit in Unit if unit is not Unit.UNKNOWN)


def decode_request(data: bytes) -> Request:
    """Read a RateLimitRequest. InvalidRequestError if the bytes are something else."""
    try:
        message = rls_pb2.RateLimitRequest.FromString(data)
    except DecodeError as exc:
        raise InvalidRequestError(f"not a RateLimitRequest: {exc}") from exc
    descriptors = message.descriptors
    # Check the counts before Python objects are made, which takes a hundred times as long as
    # parsing.
    few = len(descriptors) <= MAX_DESCRIPTORS
    _check_counts(len(descriptors), sum(len(one.entries) for one in descriptors) if few else 0)
    decoded = [_decode_descriptor(*numbered) for numbered in enumerate(message.descriptors)]
    return Request(message.domain, tuple(decoded), message.hits_addend)


def _check_counts(descriptors: int, entries: int) -> None:
    for count, most, what in (
        (descriptors, MAX_DESCRIPTORS, "descriptors"),
        (entries, MAX_ENTRIES, "entries"),
    ):
        if count > most:
            raise InvalidRequestError(f"{count} {what} in one request, at most {most}")


def _decode_descriptor(number: int, message: Any) -> Descriptor:
    entries = tuple([(entry.key, entry.value) for entry in message.entries])
    override = None
    if message.HasField("limit"):
        unit = _UNITS.get(message.limit.unit, Unit.UNKNOWN)
        if unit is Unit.UNKNOWN:
            raise InvalidRequestError(
                f"descriptor {number}: its limit override has no known unit "
                f"({message.limit.unit}); use one of {_OVERRIDE_UNITS}"
            )
        override = Override(message.limit.requests_per_unit, unit)
    hits = message.hits_addend.value if message.HasField("hits_addend") else None
    return Descriptor(entries, hits, message.is_negative_hits, override)


def encode_answer(answer: Answer) -> bytes:
    """Write a RateLimitResponse."""
    decision = answer.decision
    encode = _encode_often if _is_short(decision) else _encode_decision
    encoded = encode(decision)
    if not answer.headers and answer.metadata is None:
        return encoded
    extras = rls_pb2.RateLimitResponse()
    for key, value in answer.headers:
        extras.response_headers_to_add.add(key=key, value=value)
    if answer.metadata is not None:
        extras.dynamic_metadata.update(answer.metadata)
    # In protobuf, two messages in a row are one merged message.
    return encoded + extras.SerializeToString()


def is_over_limit(data: bytes) -> bool:
    """Whether an answer is over the limit. Its bytes begin with the code."""
    return data.startswith(_OVER_LIMIT_BYTES)


def _is_short(decision: Decision) -> bool:
    statuses, names = decision.statuses, 0
    if len(statuses) > CACHED_STATUSES:
        return False
    for status in statuses:
        if status.limit is not None:
            names += len(status.limit.name)
    return names <= CACHED_NAMES


def _encode_decision(decision: Decision) -> bytes:
    response = rls_pb2.RateLimitResponse(
        overall_code=_OVER_LIMIT if decision.over else _OK,
        statuses=[_encode_status(status) for status in decision.statuses],
    )
    return response.SerializeToString()


# The same limits, balances and waits come again and again. The cache saves nine tenths of the time.
_encode_often = lru_cache(maxsize=8192)(_encode_decision)


def _encode_status(status: Status) -> Any:
    limit = status.limit
    message = rls_pb2.RateLimitResponse.DescriptorStatus(
        code=_OVER_LIMIT if status.over else _OK, limit_remaining=status.remaining
    )
    if limit is not None:
        message.current_limit.requests_per_unit = min(limit.requests_per_unit, UINT32_MAX)
        message.current_limit.unit = _WIRE_UNITS[limit.unit]
        message.current_limit.name = limit.name
        message.duration_until_reset.seconds = status.reset_s
    return message


def encode_request(request: Request) -> bytes:
    """Write a RateLimitRequest, as a client does."""
    message = rls_pb2.RateLimitRequest(domain=request.domain, hits_addend=request.hits)
    for descriptor in request.descriptors:
        added = message.descriptors.add(is_negative_hits=descriptor.refund)
        for key, value in descriptor.entries:
            added.entries.add(key=key, value=value)
        if descriptor.hits is not None:
            added.hits_addend.value = descriptor.hits
    return message.SerializeToString()


def decode_response(data: bytes) -> dict[str, Any]:
    """Read a RateLimitResponse into plain values, under the names of the wire."""
    message = rls_pb2.RateLimitResponse.FromString(data)
    return MessageToDict(message, preserving_proto_field_name=True)


def json_to_request(text: bytes) -> bytes:
    """Turn a RateLimitRequest in JSON into bytes. InvalidRequestError if it is something else."""
    message = rls_pb2.RateLimitRequest()
    try:
        fields = json.loads(text.decode(), object_pairs_hook=_Objects().read)
        if not isinstance(fields, dict):
            raise TypeError("it must be an object")
        ParseDict(fields, message)
    except (ParseError, ValueError, TypeError, OverflowError, RecursionError) as exc:
        # The message may repeat text of the client.
        complaint = show(" ".join(str(exc).split()))
        raise InvalidRequestError(f"not a RateLimitRequest in JSON: {complaint}") from exc
    return message.SerializeToString()


class _Objects:
    """Reads the objects of one JSON text, and refuses input that protobuf's own reader handles
    badly."""

    def __init__(self) -> None:
        self._left = MAX_OBJECTS

    def read(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0 or len(pairs) > MAX_FIELDS:
            raise ValueError(
                f"it is too large: at most {MAX_DESCRIPTORS} descriptors with {MAX_ENTRIES} entries"
                f" in all, and {MAX_FIELDS} fields in an object"
            )
        for key, value in pairs:
            # UTF-8 can't encode half of a surrogate pair. Protobuf would raise SystemError.
            f"{key}{value if isinstance(value, str) else ''}".encode()
            # Protobuf reads [] and "" as {}. The lists of a request contain only objects.
            if isinstance(value, list) and not all(isinstance(item, dict) for item in value):
                raise TypeError(f"what is in {key} must be objects")
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise ValueError("a key is there twice")
        return fields


def answer_to_json(data: bytes) -> tuple[str, str]:
    """Turn the bytes of a RateLimitResponse into the name of its code, and JSON."""
    message = rls_pb2.RateLimitResponse.FromString(data)
    code = rls_pb2.RateLimitResponse.Code.Name(message.overall_code)
    return code, json.dumps(MessageToDict(message), separators=(",", ":"))


def decode_lease(data: bytes) -> LeaseAsk:
    """Read a LeaseRequest. InvalidRequestError if the bytes are something else."""
    try:
        message = leases_pb2.LeaseRequest.FromString(data)
    except DecodeError as exc:
        raise InvalidRequestError(f"not a LeaseRequest: {exc}") from exc
    key = Key(safe_name(message.entity), safe_name(message.resource))
    domain = message.domain or DOMAIN
    amounts, taken_ms = dict(message.amounts), dict(message.taken_ms)
    return LeaseAsk(key, amounts, dict(message.limits), domain, taken_ms)


def encode_lease(ask: LeaseAsk) -> bytes:
    """Write a LeaseRequest, as a client does."""
    entity, resource = ask.key
    message = leases_pb2.LeaseRequest(
        entity=entity,
        resource=resource,
        amounts=ask.amounts,
        limits=ask.limits,
        domain=ask.domain,
        taken_ms=ask.taken_ms,
    )
    return message.SerializeToString()


def encode_leased(answer: Balances | Recorded | Refused) -> bytes:
    """Write a LeaseResponse."""
    if isinstance(answer, Recorded):
        return leases_pb2.LeaseResponse(**answer._asdict()).SerializeToString()
    if isinstance(answer, Refused):
        refused = leases_pb2.LeaseResponse.Refused(**answer._asdict())
        return leases_pb2.LeaseResponse(refused=refused).SerializeToString()
    amounts, unlimited = {}, []
    for name, amount in answer.items():
        if amount is None:
            unlimited.append(name)
        else:
            amounts[name] = max(amount, _DEEPEST)
    message = leases_pb2.LeaseResponse(amounts=amounts, unlimited=unlimited)
    return message.SerializeToString()


def is_refused(data: bytes) -> bool:
    """Whether an answer to a lease is a refusal. A refusal has no other field before this one."""
    return data.startswith(_REFUSED_BYTES)


def decode_leased(data: bytes) -> Balances | Recorded | Refused:
    """Read a LeaseResponse."""
    message = leases_pb2.LeaseResponse.FromString(data)
    if message.at_ms:
        return Recorded(dict(message.amounts), message.at_ms)
    if not message.HasField("refused"):
        return dict.fromkeys(message.unlimited) | dict(message.amounts)
    refused = message.refused
    return Refused(refused.entity, refused.limit, refused.wait_ms, refused.burst)


# Rules over xDS.

ADS_METHOD: Final = (
    f"/{discovery_pb2.DESCRIPTOR.services_by_name['AggregatedDiscoveryService'].full_name}"
    "/StreamAggregatedResources"
)
RULES_TYPE: Final = f"type.googleapis.com/{rls_conf_pb2.RateLimitConfig.DESCRIPTOR.full_name}"

_INVALID_ARGUMENT: Final = 3
"""The code of google.rpc.Status."""


@dataclass(frozen=True, slots=True)
class XdsNode:
    """Who asks an xDS server."""

    id: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    """The version of Penstock."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """The envelope of a DiscoveryResponse, without its resources."""

    version: str
    nonce: str
    type_url: str
    digest: bytes
    """The same for the same types and resources, in whatever order."""


def encode_discovery(node: XdsNode, version: str, nonce: str = "", error: str = "") -> bytes:
    """Write a DiscoveryRequest for all rules. An error makes the request a NACK."""
    message = discovery_pb2.DiscoveryRequest(
        version_info=version,
        node=base_pb2.Node(id=node.id, user_agent_name="penstock", user_agent_version=node.version),
        type_url=RULES_TYPE,
        response_nonce=nonce,
    )
    message.node.metadata.update(node.metadata)
    if error:
        message.error_detail.code = _INVALID_ARGUMENT
        message.error_detail.message = error
    return message.SerializeToString()


def decode_discovered(data: bytes) -> Discovered:
    """Read the envelope of a DiscoveryResponse. ValueError if the bytes are something else."""
    message = _discovery_response(data)
    parts = [blake2b(one.value, key=_short(one.type_url)).digest() for one in message.resources]
    digest = blake2b(b"".join(sorted(parts)), key=_short(message.type_url))
    return Discovered(message.version_info, message.nonce, message.type_url, digest.digest())


def _short(text: str) -> bytes:
    return blake2b(text.encode()).digest()


def decode_rules(data: bytes) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Read the resources of a DiscoveryResponse: names, and the values that a rules file would
    have. Instead of values, the reason why a resource can't be read."""
    for number, one in enumerate(_discovery_response(data).resources, start=1):
        unnamed = f"resource {number}"
        if one.type_url != RULES_TYPE:
            yield unnamed, f"not a RateLimitConfig, but '{show(one.type_url)}'"
            continue
        try:
            config = rls_conf_pb2.RateLimitConfig.FromString(one.value)
        except DecodeError as exc:
            yield unnamed, f"not a RateLimitConfig: {exc}"
            continue
        yield config.name or unnamed, plain_rules(config)


def _discovery_response(data: bytes) -> Any:
    try:
        return discovery_pb2.DiscoveryResponse.FromString(data)
    except DecodeError as exc:
        raise ValueError(f"not a DiscoveryResponse: {exc}") from exc
