"""Makes the dynamic metadata: the request, and the metadata of the rules that admitted it."""

from collections.abc import Mapping
from typing import Any

from penstock.core.decision import Decision
from penstock.core.plan import Part, Plan
from penstock.core.request import Descriptor, Request


def dynamic_metadata(request: Request, plan: Plan, decision: Decision) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "domain": request.domain,
        "descriptors": [_describe(descriptor) for descriptor in request.descriptors],
    }
    if request.hits:
        metadata["hitsAddend"] = request.hits
    merged: dict[str, Any] = {}
    for part, status in zip(plan.parts, decision.statuses, strict=True):
        if isinstance(part, Part) and not status.over:
            _merge(merged, part.rule.metadata)
    if merged:
        metadata["metadata"] = merged
    return metadata


def _describe(descriptor: Descriptor) -> dict[str, Any]:
    described: dict[str, Any] = {"entries": [f"{key}={value}" for key, value in descriptor.entries]}
    if descriptor.override is not None:
        override = descriptor.override
        described["limit"] = (
            f"requests_per_unit:{override.requests_per_unit} unit:{override.unit.name}"
        )
    if descriptor.hits is not None:
        described["hitsAddend"] = descriptor.hits
    return described


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Merge maps at every level, into new maps. If two have the same key, the first value stays."""
    for key, value in new.items():
        if not isinstance(value, dict):
            into.setdefault(key, value)
        elif isinstance(into.setdefault(key, {}), dict):
            _merge(into[key], value)
