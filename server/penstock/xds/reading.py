"""Makes rules of a response of an xDS server.

A long response is read in a process of its own, as long files are. This file is both sides: the
functions for the server, and the program that the process runs.
"""

import asyncio
import sys
from io import BytesIO
from typing import Final

from penstock.config.read_apart import begin_apart, check_packed, run_apart, unpack, write_rules
from penstock.config.rules import LoadedRules
from penstock.config.rules_resource import Resource, load_resources
from penstock.core.rule_counting import RuleCounting
from penstock.slices import run
from penstock.transport.codec import decode_rules

SMALL_BYTES: Final = 4 * 1_024
"""A shorter response is read in a thread. It has at most 200 rules, as many as a file that is read
in a thread."""

MERGE: Final = "merge"


async def read_rules(
    response: bytes, *, merge_domains: bool, counting: RuleCounting = RuleCounting.STEADY
) -> LoadedRules:
    """RulesError if the rules have errors, ReadingError if a process fails."""
    if len(response) < SMALL_BYTES:
        return await asyncio.to_thread(_load, response, merge_domains, counting)
    return await run(unpack(await _read_apart(response, merge_domains, counting)))


async def read_packed(
    response: bytes, *, merge_domains: bool, counting: RuleCounting = RuleCounting.STEADY
) -> bytes:
    """As `read_rules`. The rules stay packed, for other processes."""
    if len(response) < SMALL_BYTES:
        packed = await asyncio.to_thread(_pack, response, merge_domains, counting)
    else:
        packed = await _read_apart(response, merge_domains, counting)
    check_packed(packed)
    return packed


async def _read_apart(response: bytes, merge_domains: bool, counting: RuleCounting) -> bytes:
    options = [counting.value, *([MERGE] if merge_domains else ())]
    return await run_apart(__name__, *options, stdin=response)


def _load(response: bytes, merge_domains: bool, counting: RuleCounting) -> LoadedRules:
    resources = [
        Resource(name, {}, fault=content) if isinstance(content, str) else Resource(name, content)
        for name, content in decode_rules(response)
    ]
    return load_resources(resources, merge_domains=merge_domains, counting=counting)


def _pack(response: bytes, merge_domains: bool, counting: RuleCounting) -> bytes:
    file = BytesIO()
    write_rules(lambda: _load(response, merge_domains, counting), file)
    return file.getvalue()


def main() -> None:
    begin_apart()
    response = sys.stdin.buffer.read()
    counting, *options = sys.argv[1:]
    merge_domains = MERGE in options
    write_rules(lambda: _load(response, merge_domains, RuleCounting(counting)), sys.stdout.buffer)


if __name__ == "__main__":
    main()
