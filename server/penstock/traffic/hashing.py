"""Hides values of a recording: the same value under the same secret always has the same hash.

So a simulation still tells callers apart, and nobody who lacks the secret can look for a name.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from penstock.core.policy_diff import Policy
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Rules, all_nodes
from penstock.traffic.json_lines import Hide

ALL: Final = "*"
"""In place of the keys: the values of all keys."""

PREFIX: Final = "hash:"
DIGEST_BYTES: Final = 12
"""Two of a billion values have the same hash with a probability of 1 in 10**10."""

REMEMBERED: Final = 16_384
"""Values whose hashes are kept. To make a hash takes 2 µs."""


def make_hash(secret: str, value: str) -> str:
    key = blake2b(secret.encode()).digest()
    return PREFIX + blake2b(value.encode(), key=key, digest_size=DIGEST_BYTES).hexdigest()


def make_hide(keys: Collection[str], secret: str) -> Hide | None:
    """What hides the values of these keys; None if there are no keys."""
    if not keys:
        return None

    @lru_cache(REMEMBERED)
    def hashed(value: str) -> str:
        return make_hash(secret, value)

    def hide(key: str, value: str) -> str:
        return hashed(value) if ALL in keys or key in keys else value

    return hide


class NamesByHash:
    """Finds the names behind hashes, among the names that rules and stored limits have.

    So a rule for one value, and the limits of one entity, apply to hashed requests, too.
    """

    def __init__(self, secret: str, names: Iterable[str]) -> None:
        self._names = {make_hash(secret, name): name for name in names}

    def restore(self, request: Request) -> Request:
        """The request, with each hash replaced whose name is known."""
        return replace(request, descriptors=tuple(map(self._restore, request.descriptors)))

    def _restore(self, descriptor: Descriptor) -> Descriptor:
        entries = [(key, self._names.get(value, value)) for key, value in descriptor.entries]
        return replace(descriptor, entries=tuple(entries))


def known_names(rules: Rules, policy: Policy) -> set[str]:
    """The values that rules name, and the entities and resources that have limits."""
    names = {node.value for node in all_nodes(rules)} | set(policy.entities)
    for scope in policy.limits:
        names |= {name for name in scope if name is not None}
    return names
