"""The keys of rules' buckets, made from the domain and the descriptor's entries.

Clients choose the values. So keys are escaped, so that different entries never share a key, and
have a bounded size.
"""

import re
from hashlib import sha256
from typing import Final

from penstock.core.foreign_text import TERMINAL_UNSAFE
from penstock.core.request import Entries
from penstock.core.take import Key

MAX_ENTITY: Final = 512
"""Characters. A partition key has at most 2,048 bytes in DynamoDB, and a character up to four."""

# Control characters are escaped, too: not every store can keep a NUL, and an operator must be able
# to type every key.
_UNSAFE: Final = re.compile(f"[{TERMINAL_UNSAFE}%,=]")


def rule_key(domain: str, entries: Entries, prefix: str = "") -> Key:
    """The key of a rule's item. No stored resource begins with `$`, so keys can't collide."""
    return Key(_entity(entries), "$domain:" + _prefixed(prefix, domain))


def override_key(domain: str, entries: Entries, prefix: str = "") -> Key:
    """The key of an override's item. It differs from the rule's key: their limits differ."""
    return Key(_entity(entries), "$override:" + _prefixed(prefix, domain))


def _prefixed(prefix: str, domain: str) -> str:
    """The comma is escaped in both parts, so a prefix and a domain never equal another domain."""
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
