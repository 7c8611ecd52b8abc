"""Rules on their way from the parent to a worker, over a real channel."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from penstock.config.packing import pack
from penstock.config.rules import LoadedRules
from penstock.workers.channel import Channel, ChannelError
from penstock.workers.rules import PIECE_BYTES, HandedRules, hand_over, send_rules
from penstock.xds.reading import read_packed, read_rules

from tests.support.ads import config, limit, pack_response
from tests.unit.workers.test_channel import connected

SHORT = pack_response([config("shop", limit("user"))], "v1")
LONG = pack_response(
    [config("shop", *(limit("user", f"user-{number}") for number in range(3_000)))], "v2"
)


@asynccontextmanager
async def worker(rules: HandedRules) -> AsyncIterator[Channel]:
    handles = {"piece of rules": rules.add, "use rules": lambda _: rules.use()}
    async with connected(handles) as (parent, _):
        yield parent


async def packed(response: bytes) -> bytes:
    return await read_packed(response, merge_domains=False)


async def test_rules_that_come_before_a_worker_begins_are_loaded() -> None:
    """In pieces, however long they are, and once. An empty state is a state."""
    content = await packed(LONG)
    assert len(content) > 2 * PIECE_BYTES
    for response, domains in ((LONG, ["shop"]), (pack_response([], "v3"), [])):
        rules = HandedRules()
        assert rules.load() is None
        handles = {"piece of rules": rules.add, "begin": lambda _: None}
        async with connected(handles) as (parent, _):
            await send_rules(parent, content if response is LONG else await packed(response))
            await parent.ask("begin")
        loaded, expected = rules.load(), await read_rules(response, merge_domains=False)
        assert loaded is not None
        assert list(pack(loaded.rules)) == list(pack(expected.rules))
        assert list(loaded.rules) == domains
        assert rules.load() is None


async def test_the_parent_hears_when_rules_are_in_force() -> None:
    """Not before: the ACK to the xDS server depends on this."""
    rules, gate, begun = HandedRules(), asyncio.Event(), asyncio.Event()

    async def use(loaded: LoadedRules) -> None:
        assert list(loaded.rules) == ["shop"]
        begun.set()
        await gate.wait()

    following = asyncio.create_task(rules.follow(use))
    async with worker(rules) as parent:
        handing = asyncio.create_task(hand_over(parent, await packed(SHORT)))
        await begun.wait()
        assert not handing.done()
        gate.set()
        await handing
    following.cancel()


async def test_a_worker_that_fails_to_use_rules_is_noticed() -> None:
    """The parent goes on without its answer."""
    rules = HandedRules()

    async def use(loaded: LoadedRules) -> None:
        raise RuntimeError(f"no place for {len(loaded.rules)}")

    following = asyncio.create_task(rules.follow(use))
    async with worker(rules) as parent:
        with pytest.raises(ChannelError, match="new rules can't be used: no place for 1"):
            await hand_over(parent, await packed(SHORT))
        with pytest.raises(RuntimeError, match="no place"):
            await following
