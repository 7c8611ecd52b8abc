"""The client against a real xDS server: what it asks, accepts, refuses, and survives."""

import asyncio
import logging

import pytest
from penstock.config.read_apart import ReadingError
from penstock.config.rules import LoadedRules
from penstock.transport.ads import KEEPALIVE_MS, AdsError, AdsServer, open_stream
from penstock.transport.codec import RULES_TYPE, encode_discovery
from penstock.xds import client

from tests.support.ads import Ads, config, limit, pack_response, serve_ads
from tests.support.processes import wait_for
from tests.unit.xds.conftest import NODE, SIZE, Following, following, read_plain

GOOD = config("shop", limit("user"))
OTHER = config("shop", limit("user", n=9))
BAD = config("shop", limit("user", per="UNKNOWN"), {"key": ""})
BAD_TEXT = (
    "shop: descriptors[0].rate_limit: invalid rate limit unit 'UNKNOWN'\n"
    "shop: descriptors[1]: descriptor has empty key"
)


async def acked(ads: Ads, version: str) -> None:
    await asyncio.to_thread(ads.wait_for_ack, version)


async def test_the_first_request_asks_for_everything(ads: Ads) -> None:
    """By node and metadata, with the headers, without names, version or nonce."""
    made = Following(ads.address, headers=(("x-tenant", "edge"),))
    async with following(made):
        await made.until(lambda: ads.heard, "a request")
    (first,) = ads.heard
    assert (first.node, first.metadata) == ("node-1", {"team": "edge"})
    assert (first.type_url, first.names) == (RULES_TYPE, ())
    assert (first.version, first.nonce, first.error) == ("", "", "")
    assert first.headers["x-tenant"] == "edge"


async def test_an_ack_goes_out_when_the_rules_are_in_force(ads: Ads) -> None:
    """Not before. The ACK has the version and the nonce."""
    made, gate = Following(ads.address), asyncio.Event()

    async def use_slowly(loaded: LoadedRules) -> None:
        made.used.append(loaded)
        await gate.wait()

    made.use = use_slowly  # type: ignore[method-assign]
    async with following(made):
        ads.publish(GOOD)
        await made.until(lambda: made.used, "rules")
        assert ads.answers() == []
        gate.set()
        await acked(ads, "v1")
    assert [(one.version, one.nonce, one.error) for one in ads.answers()] == [("v1", "nonce-1", "")]
    assert made.lines == ["shop.user: unit=DAY requests_per_unit=5"]


async def test_a_state_replaces_all_that_was(ads: Ads) -> None:
    """Several resources, one that vanishes, and none at all."""
    made = Following(ads.address)
    async with following(made):
        ads.publish(GOOD, config("api", limit("key")))
        await acked(ads, "v1")
        assert sorted(made.used[-1].rules) == ["api", "shop"]
        ads.publish(config("api", limit("key")))
        await acked(ads, "v2")
        assert sorted(made.used[-1].rules) == ["api"]
        ads.publish()
        await acked(ads, "v3")
        assert made.used[-1].rules == {}


async def test_a_bad_state_is_refused_with_every_error_and_changes_nothing(ads: Ads) -> None:
    """The NACK has the version in force and the nonce of the bad one. The next good one counts."""
    made = Following(ads.address)
    async with following(made):
        ads.publish(GOOD)
        await acked(ads, "v1")
        ads.publish(BAD, config("api", limit("key")))
        nack = await asyncio.to_thread(ads.wait_for_nack)
        assert (nack.version, nack.nonce, nack.error) == ("v1", "nonce-2", BAD_TEXT)
        assert len(made.used) == 1
        assert made.client.status.error == BAD_TEXT
        ads.publish(OTHER)
        await acked(ads, "v3")
        assert made.client.status.error == ""
    assert made.lines == ["shop.user: unit=DAY requests_per_unit=9"]
    assert made.metrics.config_load_error.value == 1


async def test_a_state_that_flaps_between_good_and_bad(ads: Ads) -> None:
    """Each is answered by what it is, and the good one is loaded once."""
    made = Following(ads.address)
    async with following(made):
        for turn in range(1, 4):
            ads.publish(GOOD)
            await acked(ads, f"v{2 * turn - 1}")
            ads.publish(BAD)
            await asyncio.to_thread(ads.wait_for_nack, turn)
    assert [bool(one.error) for one in ads.answers()] == [False, True] * 3
    assert len(made.used) == 1


async def test_a_server_that_repeats_what_was_refused_is_answered_slowly(ads: Ads) -> None:
    """Some control planes answer a NACK with the same state at once."""
    made = Following(ads.address)
    async with following(made):
        made.may_pause.clear()
        ads.publish(BAD)
        await asyncio.to_thread(ads.wait_for_nack)
        ads.publish(BAD)
        await made.until(lambda: made.paused, "a pause")
        assert len(ads.answers()) == 1
        made.may_pause.set()
        await asyncio.to_thread(ads.wait_for_nack, 2)
    assert made.paused == [1.0]
    assert made.metrics.config_load_error.value == 1


async def test_only_a_good_response_has_an_effect(ads: Ads) -> None:
    """Another type, resources of another type, and bytes that are no rules."""
    made = Following(ads.address)
    async with following(made):
        ads.publish(GOOD)
        await acked(ads, "v1")
        ads.publish_bytes(pack_response([], "v2", "a", type_url="type.googleapis.com/x.Other"))
        first = await asyncio.to_thread(ads.wait_for_nack, 1)
        assert first.error == f"not {RULES_TYPE}, but 'type.googleapis.com/x.Other'"
        response = pack_response([GOOD, GOOD], "v3", "b")
        ads.publish_bytes(response.replace(b"v3.RateLimitConfig\x12", b"v3.AnotherTypeName\x12"))
        second = await asyncio.to_thread(ads.wait_for_nack, 2)
        assert "resource 1: not a RateLimitConfig, but 'type.googleapis.com/" in second.error
        assert "resource 2: not a RateLimitConfig, but " in second.error
        ads.publish_bytes(response.replace(b"\x04shop", b"\x04sh\xffp"))
        third = await asyncio.to_thread(ads.wait_for_nack, 3)
        assert "resource 1: not a RateLimitConfig: " in third.error
    assert len(made.used) == 1


async def test_a_response_that_is_no_response_ends_the_stream(ads: Ads) -> None:
    """There is no nonce to answer. The next stream gets the state of that moment."""
    made = Following(ads.address)
    async with following(made):
        ads.publish_bytes(b"\xff\xff\xff")
        await made.until(lambda: made.paused, "a pause")
        ads.publish(GOOD)
        await acked(ads, "v1")
    assert made.paused[0] == 10.0
    assert ads.streams > 1


async def test_a_stream_that_ends_begins_again_with_what_is_in_force(ads: Ads) -> None:
    """Without a version, so that the server sends all; what is the same is not loaded again."""
    made = Following(ads.address)
    async with following(made):
        ads.publish(GOOD)
        await acked(ads, "v1")
        for answers in (2, 3):
            ads.cut()
            await made.until(lambda: len(ads.answers()) == answers, "an answer")  # noqa: B023
    first, *others = (one for one in ads.heard if not one.nonce)
    assert [one.stream for one in (first, *others)] == [1, 2, 3]
    assert [one.version for one in others] == ["", ""]
    # Each stream brought something, so the pauses do not grow.
    assert (len(made.used), made.paused) == (1, [10.0, 10.0])


async def test_a_stream_that_ended_takes_no_answer(ads: Ads) -> None:
    """As after a long time of reading rules. It is the stream's end, and no fault of the client."""
    async with open_stream(AdsServer(ads.address, SIZE)) as stream:
        await stream.send(encode_discovery(NODE, ""))
        await asyncio.to_thread(wait_for, lambda: ads.heard, "a request")
        ads.cut()
        with pytest.raises(AdsError, match="UNAVAILABLE: cut by the test"):
            await stream.receive()
        with pytest.raises(AdsError, match="the stream ended before an answer: cut by the test"):
            await stream.send(encode_discovery(NODE, "v1", "nonce"))


async def test_a_server_that_counts_from_the_beginning_again_is_followed() -> None:
    """Envoy Gateway does so after a restart: the same version means other rules."""
    async with serve_ads() as first:
        port = first.port
        made = Following(first.address)
        follow = following(made)
        await follow.__aenter__()
        first.publish(GOOD, version="1")
        await acked(first, "1")
    await made.until(lambda: made.paused, "a pause")
    async with serve_ads(port=port) as second:
        second.publish(OTHER, version="1")
        await acked(second, "1")
        assert made.lines == ["shop.user: unit=DAY requests_per_unit=9"]
        await follow.__aexit__(None, None, None)


async def test_a_server_that_cannot_be_reached_is_tried_again_and_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the pace of the retry interval. The log says why."""
    caplog.set_level(logging.WARNING)
    async with serve_ads() as gone:
        address = gone.address
    async with following(Following(address)) as made:
        await made.until(lambda: len(made.paused) >= 3, "three pauses")
        assert set(made.paused) == {3.0}
        told = f"the xDS server {address} can't be reached, trying again in 3.0 s: UNAVAILABLE: "
        assert told in caplog.text


async def test_a_silent_stream_stays_open_and_is_heard_in_the_end(ads: Ads) -> None:
    """Nothing in the client waits for a time. Pings find a server that is gone."""
    async with following(Following(ads.address)) as made:
        await made.until(lambda: made.metrics.xds_connected.value, "a connection")
        ads.publish(GOOD)
        await acked(ads, "v1")
        assert made.paused == []
    assert ads.streams == 1
    options = dict(AdsServer("x:1", 1).options)
    assert options["grpc.keepalive_time_ms"] == KEEPALIVE_MS > 300_000
    assert options["grpc.http2.max_pings_without_data"] == 0


async def test_a_response_above_the_size_names_the_setting(
    ads: Ads, caplog: pytest.LogCaptureFixture
) -> None:
    """And one below is taken."""
    long = config("shop", *(limit("user", f"u{number}") for number in range(200)))
    async with following(Following(ads.address, size=1_024)) as made:
        ads.publish(long)
        await made.until(lambda: made.paused, "a pause")
    assert "RESOURCE_EXHAUSTED: " in caplog.text
    assert "; XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES is 1024" in caplog.text


async def test_a_process_that_fails_is_tried_again_without_an_answer(ads: Ads) -> None:
    """It is no fault of the rules, so there is no NACK."""
    told = []

    async def read(response: bytes) -> LoadedRules:
        told.append(made.client.status.error)
        if len(told) < 3:
            raise ReadingError("no more processes")
        return await read_plain(response)

    async with following(Following(ads.address, read=read)) as made:
        ads.publish(GOOD)
        await acked(ads, "v1")
        assert made.client.status.error == ""
    assert told == ["", "no more processes", "no more processes"]
    assert made.paused == [10.0, 10.0]
    assert len(ads.answers()) == 1


async def read_unless_shop(response: bytes) -> LoadedRules:
    if b"shop" in response:
        raise ReadingError("no more processes")
    return await read_plain(response)


async def test_a_process_that_keeps_failing_is_told_and_holds_up_no_newer_rules(ads: Ads) -> None:
    """Three tries, then a NACK. The rules in force stay."""
    async with following(Following(ads.address, read=read_unless_shop)) as made:
        ads.publish(config("api", limit("key")))
        await acked(ads, "v1")
        ads.publish(GOOD)
        nack = await asyncio.to_thread(ads.wait_for_nack)
        assert (nack.version, nack.nonce) == ("v1", "nonce-2")
        assert nack.error.startswith("the rules can't be read, which is no fault of the rules: ")
        assert nack.error.endswith(": no more processes")
        assert made.paused == [10.0, 10.0]
        assert made.metrics.config_load_error.value == 3
        assert list(made.used[-1].rules) == ["api"]
        ads.publish(config("web", limit("key")))
        await acked(ads, "v3")
    assert (ads.streams, list(made.used[-1].rules)) == (1, ["web"])


async def test_rules_that_could_not_be_read_are_asked_for_again(
    ads: Ads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a new stream, if the control plane does not send them again by itself."""
    monkeypatch.setattr(client, "ASK_AGAIN_S", 0.01)
    is_short = True

    async def read(response: bytes) -> LoadedRules:
        return await (read_unless_shop if is_short else read_plain)(response)

    async with following(Following(ads.address, read=read)) as made:
        ads.publish(GOOD)
        await asyncio.to_thread(ads.wait_for_nack)
        is_short = False
        await acked(ads, "v1")
        assert made.lines == ["shop.user: unit=DAY requests_per_unit=5"]
    assert ads.streams > 1


async def test_operators_see_what_happens(ads: Ads) -> None:
    """Metrics, and lines for the debug page."""
    made = Following(ads.address)
    status, metrics = made.client.status, made.metrics
    source = f"rules from the xDS server {ads.address}, for the node node-1: "
    assert list(status.lines()) == [f"{source}not connected", "no rules have come yet"]
    async with following(made):
        ads.publish(GOOD, version="7")
        await acked(ads, "7")
        assert metrics.xds_connected.value == 1
        ads.publish(BAD, version="8")
        await asyncio.to_thread(ads.wait_for_nack)
        first, second, third, *errors = status.lines()
    assert first == f"{source}connected"
    assert second.startswith("version 7, accepted 20")
    assert third.startswith("version 8 was refused 20")
    assert errors == [f"    {line}" for line in BAD_TEXT.splitlines()]
    assert metrics.xds_connected.value == 0
    assert [labels for labels, _ in metrics.rules_info.series()] == [("xds", "7")]
    assert {labels: one.value for labels, one in metrics.xds_responses.series()} == {
        ("ack",): 1,
        ("nack",): 1,
    }
    times = {labels: one.value for labels, one in metrics.xds_last_response.series()}
    assert 0 < times["ack",] <= times["nack",]
