"""What single items had, against the composite items that they became. Never awaits.

A composite item says when it was converted, and each of its buckets what it had consumed before.
Takes keep both. So the comparison tells a loss from what happens by itself:

    the composite item expires, and a take puts a new one      the item says nothing of a conversion
    a policy removes a limit: the bucket goes                  the fingerprint is that of the rest
    a policy brings the limit back: a full bucket              the bucket says nothing of before
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from penstock.core.bucket import Bucket, Item
from penstock.core.take import Key
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.items.images import (
    BEFORE,
    Attributes,
    Image,
    attribute,
    number,
    parse_image,
)
from penstock.store.dynamodb.migration.old_items import CONVERTED, OldItem, compose
from penstock.store.migration_port import Report

LAST_S: Final = 253_402_300_799
"""The last second that a date can have."""


def compare(
    key: Key, olds: Sequence[OldItem], found: Attributes | None, now_ms: int, report: Report
) -> None:
    """Note what the composite item of a key lacks. `found` is None if there is no such item."""
    report.problems += [describe_left_out(old) for old in olds if old.is_left_out]
    merged = sorted([old for old in olds if old.is_merged], key=_converted_ms)
    if not merged:
        report.expired += any(old.is_converted for old in olds)
        return
    try:
        image = None if found is None else parse_image(found)
    except (KeyError, ValueError) as exc:
        report.problems.append(f"{_place(key)}: the composite item can't be read: {exc}")
        return
    for converted_ms, group in groupby(merged, _converted_ms):
        some = list(group)
        if found is None or image is None or found.get(CONVERTED) != number(converted_ms):
            report.expired += 1
            report.problems += _explain_absence(key, some, image, converted_ms, now_ms)
            continue
        for old in some:
            _compare_bucket(old, found, image, now_ms, report)


def describe_left_out(old: OldItem) -> str:
    return (
        f"{_limit(old)}: the composite item was there already, "
        "made by a server that did not look for single items: what the single item had is lost"
    )


def _explain_absence(
    key: Key, olds: Sequence[OldItem], image: Image | None, converted_ms: int, now_ms: int
) -> list[str]:
    """The problem with a composite item that is gone, or was put anew; empty if it had expired."""
    expires_s = compose(olds).expires_s
    if image is not None and expires_s is not None:
        # The policy may have changed, and with it the time after which the item expires.
        terms = make_terms(tuple(bucket.limit for bucket in image.item.buckets))
        under_policy_s = terms.expires_s(converted_ms)
        expires_s = expires_s if under_policy_s is None else min(expires_s, under_policy_s)
    if expires_s is not None and expires_s * 1000 <= now_ms:
        return []
    what = "is gone" if image is None else "is a new one"
    at = "" if expires_s is None else f" before {_time(expires_s)}"
    return [f"{_place(key)}: the composite item {what}, and the converted one can't expire{at}"]


def _compare_bucket(
    old: OldItem, found: Attributes, image: Image, now_ms: int, report: Report
) -> None:
    name = old.bucket.limit.name
    buckets = {bucket.limit.name: bucket for bucket in image.item.buckets}
    before = found.get(attribute(name, BEFORE))
    if name not in buckets:
        if not _is_as_policy_left_it(image):
            report.problems.append(f"{_limit(old)}: the composite item lacks this limit")
        return
    if before is None:
        return  # a policy removed the limit, and brought it back
    now = image.item._replace(buckets=(buckets[name],))
    report.before.add(Item(old.refilled_ms, (old.bucket,)), now_ms)
    report.after.add(now, now_ms)
    fault = _find_fault(old, int(before["N"]), now.refilled_ms, buckets[name], now_ms)
    if fault:
        report.problems.append(f"{_limit(old)}: {fault}")


def _is_as_policy_left_it(image: Image) -> bool:
    """Whether the item has the limits that it was last settled under."""
    limits = tuple(bucket.limit for bucket in image.item.buckets)
    return image.fingerprint in {
        make_terms(limits, never_expires=never).fingerprint for never in (False, True)
    }


def _find_fault(old: OldItem, before: int, refilled_ms: int, bucket: Bucket, now_ms: int) -> str:
    """What a bucket lost. Takes only move tokens from the balance to what is consumed, and credit
    adds to the balance. So neither `consumed` nor the sum ever goes down."""
    if before != old.bucket.consumed:
        return (
            f"the single item has consumed {old.bucket.consumed}, and {before} when it was "
            "converted: its program still writes to it"
        )
    if bucket.consumed < before:
        return f"consumed {bucket.consumed}, and {before} before"
    if bucket.limit != old.bucket.limit:
        return ""  # a change of policy changes balances, too
    sum_now = bucket.balance(refilled_ms, now_ms) + bucket.consumed
    sum_before = old.bucket.balance(old.refilled_ms, now_ms) + before
    if sum_now >= sum_before:
        return ""
    return f"balance and consumed are {sum_now}, and {sum_before} before"


def _converted_ms(old: OldItem) -> int:
    return old.converted_ms or 0


def _place(key: Key) -> str:
    return f"{key.entity} on {key.resource}"


def _limit(old: OldItem) -> str:
    return f"{_place(old.key)}, limit {old.bucket.limit.name}"


def _time(at_s: int) -> str:
    return f"{datetime.fromtimestamp(min(at_s, LAST_S), UTC):%Y-%m-%d %H:%M:%SZ}"
