"""Where a rule's buckets live: a key made from the domain and the descriptor's entries.

Clients choose the values, so a key is escaped (one key, one list of entries) and of bounded size.
"""

import re
from hashlib import sha256
from typing import Final

from penstock.core.foreign_text import TERMINAL_UNSAFE
from penstock.core.request import Entries
from penstock.core.take import Key

MAX_ENTITY: Final = 512
"""Characters. DynamoDB takes 2,048 bytes in a key, and a character may be four."""

# Also what a terminal acts on: not every store keeps a NUL, and an operator can name each key.
_UNSAFE: Final = re.compile(f"[{TERMINAL_UNSAFE}%,=]")


def rule_key(domain: str, entries: Entries, prefix: str = "") -> Key:
    """A rule's item. The `$` keeps it apart from stored resources, which can't begin with one."""
    return Key(_entity(entries), "$domain:" + _prefixed(prefix, domain))


def override_key(domain: str, entries: Entries, prefix: str = "") -> Key:
    """An override's item, apart from the rule's: their limits have nothing in common."""
    return Key(_entity(entries), "$override:" + _prefixed(prefix, domain))


def _prefixed(prefix: str, domain: str) -> str:
    """The comma is escaped in both, so no prefix and domain are taken for another domain."""
    return f"{_escape(prefix)},{_escape(domain)}" if prefix else _escape(domain)


def _entity(entries: Entries) -> str:
    entity = ",".join([f"{_escape(key)}={_escape(value)}" for key, value in entries])
    if len(entity) <= MAX_ENTITY:
        return entity
    digest = sha256(entity.encode()).hexdigest()
    return f"{entity[:64]}%%{digest}"


def _escape(text: str) -> str:
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02x}", text)
