"""A RateLimitConfig in the plain values that a rules file would have.

A field that is not set is left out, as in a file. Only `unit` and `requests_per_unit` are always
there, so that a limit without them is refused by the text that a file gets.
"""

from typing import Any


def plain_rules(message: Any) -> dict[str, Any]:
    descriptors = [_descriptor(one) for one in message.descriptors]
    return {"domain": message.domain, "descriptors": descriptors}


def _descriptor(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"key": message.key}
    if message.value:
        fields["value"] = message.value
    for name in ("shadow_mode", "detailed_metric", "quota_mode"):
        if getattr(message, name):
            fields[name] = True
    if message.HasField("rate_limit"):
        fields["rate_limit"] = _limit(message.rate_limit)
    if message.HasField("metadata"):
        fields["metadata"] = _struct_fields(message.metadata)
    if message.descriptors:
        fields["descriptors"] = [_descriptor(one) for one in message.descriptors]
    return fields


def _limit(message: Any) -> dict[str, Any]:
    units = message.DESCRIPTOR.fields_by_name["unit"].enum_type
    known = units.values_by_number.get(message.unit)
    fields: dict[str, Any] = {
        "unit": known.name if known else str(message.unit),
        "requests_per_unit": message.requests_per_unit,
    }
    if message.unlimited:
        fields["unlimited"] = True
    if message.name:
        fields["name"] = message.name
    if message.replaces:
        fields["replaces"] = [{"name": one.name} for one in message.replaces]
    return fields


def _struct_fields(struct: Any) -> dict[str, Any]:
    return {key: _struct_value(value) for key, value in struct.fields.items()}


def _struct_value(value: Any) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            return _struct_fields(value.struct_value)
        case "list_value":
            return [_struct_value(one) for one in value.list_value.values]
        case "null_value" | None:
            return None
        case kind:
            return getattr(value, kind)
