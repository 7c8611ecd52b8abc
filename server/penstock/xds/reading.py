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
from penstock.slices import run
from penstock.transport.codec import decode_rules

SMALL_BYTES: Final = 4 * 1_024
"""A shorter response is read in a thread. It has at most 200 rules, as many as a file that is read
in a thread."""

MERGE: Final = "merge"


async def read_rules(response: bytes, *, merge_domains: bool) -> LoadedRules:
    """RulesError if the rules have errors, ReadingError if a process fails."""
    if len(response) < SMALL_BYTES:
        return await asyncio.to_thread(_load, response, merge_domains)
    return await run(unpack(await _read_apart(response, merge_domains)))


async def read_packed(response: bytes, *, merge_domains: bool) -> bytes:
    """As `read_rules`. The rules stay packed, for other processes."""
    if len(response) < SMALL_BYTES:
        packed = await asyncio.to_thread(_pack, response, merge_domains)
    else:
        packed = await _read_apart(response, merge_domains)
    check_packed(packed)
    return packed


async def _read_apart(response: bytes, merge_domains: bool) -> bytes:
    return await run_apart(__name__, *([MERGE] if merge_domains else ()), stdin=response)


def _load(response: bytes, merge_domains: bool) -> LoadedRules:
    resources = [
        Resource(name, {}, fault=content) if isinstance(content, str) else Resource(name, content)
        for name, content in decode_rules(response)
    ]
    return load_resources(resources, merge_domains=merge_domains)


def _pack(response: bytes, merge_domains: bool) -> bytes:
    file = BytesIO()
    write_rules(lambda: _load(response, merge_domains), file)
    return file.getvalue()


def main() -> None:
    begin_apart()
    response = sys.stdin.buffer.read()
    write_rules(lambda: _load(response, MERGE in sys.argv[1:]), sys.stdout.buffer)


if __name__ == "__main__":
    main()
