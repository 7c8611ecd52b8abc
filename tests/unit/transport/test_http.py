"""The pages of the HTTP ports, and decisions in JSON."""

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from penstock.errors import StoreError
from penstock.service.answer import Options
from penstock.service.headers import HeaderNames
from penstock.transport import http, http_site

from tests.unit.transport.http_serving import Serving, serving

GET_PAGES = ["main/healthcheck", "main/ready", "main/metrics", "debug/rlconfig", "debug/stats"]


@pytest.fixture
async def served() -> AsyncIterator[Serving]:
    async with serving() as made:
        yield made


def place(served: Serving, page: str) -> tuple[str, str]:
    port, _, path = page.partition("/")
    return f"/{path}", {"main": served.main, "debug": served.debug}[port]


async def test_healthcheck_is_ok_or_500(served: Serving) -> None:
    """As the reference server has it, and what liveness probes look at."""
    assert await served.get("/healthcheck") == (200, "OK")
    served.shown.healthy = False
    assert await served.get("/healthcheck") == (500, "not healthy\n")


async def test_ready_says_why_it_is_not(served: Serving) -> None:
    """503, so that a balancer goes elsewhere, and a reason for the person who wonders."""
    assert await served.get("/ready") == (200, "ready")
    served.shown.reason = "no rules are loaded"
    assert await served.get("/ready") == (503, "no rules are loaded\n")


async def test_debug_pages_are_lines_of_text(served: Serving) -> None:
    """The index names each page of its port."""
    assert await served.get("/stats", served.debug) == (200, "calls: 3\n")
    status, rules = await served.get("/rlconfig", served.debug)
    assert (status, rules) == (200, "d.five: unit=MINUTE requests_per_unit=5\n")
    status, index = await served.get("/", served.debug)
    lines = [line.partition(": ") for line in index.splitlines()]
    assert [path for path, _, _ in lines] == ["/", "/rlconfig", "/stats"]
    assert all(help_ for _, _, help_ in lines)


async def test_metrics_are_in_the_format_of_prometheus(served: Serving) -> None:
    """On the main port, and on a port and path of their own; nothing else is there."""
    for url in (f"http://{served.main}/metrics", f"http://{served.prometheus}/prometheus"):
        async with served.session.get(url) as response:
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert (response.status, await response.text()) == (200, served.shown.metrics)
    assert (await served.get("/metrics", served.prometheus))[0] == 404
    assert (await served.get("/healthcheck", served.prometheus))[0] == 404


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("br;q=1.0, *;q=0.1", True),
        ("gzip;q=0, *", False),
        ("gzip ; q=0.000", False),
        ("deflate, br", False),
        ("", False),
    ],
)
async def test_long_texts_are_compressed_for_who_takes_it(
    served: Serving, accepted: str, zipped: bool
) -> None:
    """Metrics of many rules are long, and scraped often."""
    served.shown.metrics = "up 1\n" * 100_000
    request = f"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {accepted}\r\n"
    answer = await served.send(f"{request}Connection: close\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (b"\r\nContent-Encoding: gzip" in head) is zipped
    assert b"\r\nVary: Accept-Encoding" in head
    assert f"\r\nContent-Length: {len(body)}".encode() in head
    assert (gzip.decompress(body) if zipped else body).decode() == served.shown.metrics


@pytest.mark.parametrize("page", GET_PAGES)
async def test_head_is_get_without_the_text(served: Serving, page: str) -> None:
    """Some probes ask so; the length is that of the text."""
    path, address = place(served, page)
    _, text = await served.get(path, address)
    async with served.session.head(f"http://{address}{path}") as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.content_length == len(text)


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
@pytest.mark.parametrize("body", [b"", b"x" * 100_000])
async def test_health_is_told_whatever_a_prober_asks_by(
    served: Serving, method: str, body: bytes
) -> None:
    """The reference server looks at no method. What is posted with it does no harm."""
    async with served.session.request(
        method, f"http://{served.main}/healthcheck", data=body or None
    ) as response:
        assert (response.status, await response.text()) == (200, "OK")
    assert await served.get("/healthcheck") == (200, "OK")


@pytest.mark.parametrize(
    ("method", "page", "allowed"),
    [
        ("GET", "main/json", "POST"),
        ("PUT", "main/json", "POST"),
        ("DELETE", "main/healthcheck", "GET, HEAD, OPTIONS, POST"),
        ("POST", "main/ready", "GET, HEAD"),
        ("DELETE", "debug/", "GET, HEAD"),
        ("PATCH", "debug/stats", "GET, HEAD"),
    ],
)
async def test_other_methods_are_refused(
    served: Serving, method: str, page: str, allowed: str
) -> None:
    """405, with those that are allowed."""
    path, address = place(served, page)
    async with served.session.request(method, f"http://{address}{path}") as response:
        assert (response.status, response.headers["Allow"]) == (405, allowed)
        assert await response.text() == f"{path} takes {allowed}\n"


async def test_an_unknown_path_is_told_what_there_is(served: Serving) -> None:
    """And not what it asked for, which may be anything."""
    main = "no such page, there is /healthcheck, /ready, /json, /metrics\n"
    assert await served.get("/") == (404, main)
    assert await served.get(f"/{'x' * 5_000}") == (404, main)
    assert await served.get("/healthcheck/") == (404, main)
    debug = "no such page, there is /, /rlconfig, /stats\n"
    assert await served.get("/debug/pprof/", served.debug) == (404, debug)


@pytest.mark.parametrize("page", GET_PAGES)
async def test_a_page_that_fails_is_500_and_logged_once(
    served: Serving, page: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns that, the log learns what."""
    path, address = place(served, page)
    served.shown.error = RuntimeError("password=hunter2")
    status, text = await served.get(path, address)
    assert (status, text) == (500, "a fault of this server; its log has more\n")
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "hunter2" in caplog.text
    served.shown.error = None
    assert (await served.get(path, address))[0] == 200


@pytest.mark.parametrize("page", GET_PAGES)
async def test_a_page_that_needs_a_store_which_fails_is_503(
    served: Serving, page: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The store's own words are for the log."""
    path, address = place(served, page)
    served.shown.error = error = StoreError("the disk is gone", kind="lost")
    assert await served.get(path, address) == (503, f"{error.for_caller}\n")
    assert "the disk is gone" in caplog.text


async def test_a_page_that_hangs_is_given_up(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503, as the store, or whatever it waits for, does not answer."""
    monkeypatch.setattr(http_site, "ANSWER_S", 0.1)
    served.shown.gate = asyncio.Event()
    assert await served.get("/ready") == (503, "no answer in 0.1 s\n")


async def test_a_long_page_is_compressed_by_a_thread(served: Serving) -> None:
    """The event loop answers others meanwhile; a short page is not worth a thread."""
    used = []

    class Watched(ThreadPoolExecutor):
        def submit(self, *args: Any, **more: Any) -> Future[Any]:
            used.append(args[0].__name__)
            return super().submit(*args, **more)

    with Watched(1) as executor:
        asyncio.get_running_loop().set_default_executor(executor)
        for length, threads in ((http_site.GZIP_APART // 2, 0), (10 * http_site.GZIP_APART, 1)):
            served.shown.metrics = f"# {'x' * length}\n"
            assert await served.get("/metrics") == (200, served.shown.metrics)
            assert used.count("compress") == threads  # the client uses the thread, too


async def test_text_that_has_no_utf8_is_shown_escaped(served: Serving) -> None:
    """YAML and JSON can name half of a surrogate pair; one of those must not take a page down."""
    served.shown.metrics = 'up{rule="\ud800"} 1\n'
    assert await served.get("/metrics") == (200, 'up{rule="\\ud800"} 1\n')


async def test_answers_do_not_say_what_they_are_made_with(served: Serving) -> None:
    """Versions tell an attacker what to try."""
    for path in ("/healthcheck", "/nowhere"):
        async with served.session.get(f"http://{served.main}{path}") as response:
            assert response.headers["Server"] == "penstock"
            assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_json_is_decided_until_the_limit(served: Serving) -> None:
    """Five pass, the sixth is 429; names are lowerCamelCase, as the reference server has them."""
    limit = {"requestsPerUnit": 5, "unit": "MINUTE"}
    for left in (4, 3, 2, 1):
        status, answer = await served.decide()
        assert (status, answer["overallCode"]) == (200, "OK")
        assert answer["statuses"][0]["limitRemaining"] == left
    assert (await served.decide())[0] == 200
    over = {"code": "OVER_LIMIT", "currentLimit": limit, "durationUntilReset": "12s"}
    assert await served.decide() == (429, {"overallCode": "OVER_LIMIT", "statuses": [over]})


async def test_json_is_answered_as_json(served: Serving) -> None:
    """Whatever content type it was sent with: curl says it is a form."""
    body = '{"domain": "other", "descriptors": [{"entries": [{"key": "perday"}]}]}'
    url, headers = f"http://{served.main}/json", {"Content-Type": "application/x-www-form-encoded"}
    async with served.session.post(url, data=body, headers=headers) as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
        assert await response.text() == '{"overallCode":"OK","statuses":[{"code":"OK"}]}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "not a RateLimitRequest in JSON: Expecting value: line 1 column 1"),
        ("}", "not a RateLimitRequest in JSON: Expecting value: line 1 column 1"),
        ("{}", "rate limit domain must not be empty"),
        ('{"domain": "d"}', "rate limit descriptor list must not be empty"),
        ('{"domain": "d", "unknown": 1}', 'has no field named "unknown"'),
        ('{"domain": "d", "descriptors": {"entries": []}}', "must be in []"),
        (
            '{"domain": "d", "descriptors": [{"limit": {"requestsPerUnit": 5}}]}',
            "descriptor 0: its limit override has no known unit (0); use one of SECOND,",
        ),
        (
            json.dumps({"domain": "d", "descriptors": [{}] * 257}),
            "257 descriptors in one request, at most 256",
        ),
        (
            json.dumps({"domain": "d", "descriptors": [{}] * 10_000}),
            "at most 256 descriptors with 2048 entries in all",
        ),
        (
            json.dumps({f"f{number}": 1 for number in range(10_000)}),
            "and 16 fields in an object",
        ),
    ],
)
async def test_bad_json_is_400_with_what_is_wrong(served: Serving, body: str, text: str) -> None:
    """The reference server's expectations; and it serves on."""
    status, told = await served.post(body)
    assert status == 400
    assert text in told
    assert (await served.decide())[0] == 200


async def test_a_complaint_repeats_little_of_what_was_sent(served: Serving) -> None:
    """A name or a value may be as long as the request."""
    for body in ({"x" * 60_000: 1}, {"domain": "d", "hitsAddend": "9" * 60_000}):
        status, told = await served.post(json.dumps(body))
        assert status == 400
        assert "not a RateLimitRequest in JSON" in told
        assert len(told) < 400


async def test_before_there_are_rules_json_is_400(served: Serving) -> None:
    """The reference server's words."""
    served.limiter._rules = None  # noqa: SLF001 - as in a server that started without any
    told = await served.post('{"domain": "d", "descriptors": [{}]}')
    assert told == (400, "no rate limit configuration loaded\n")


async def test_hits_may_be_a_string_as_64_bits_are_in_json(served: Serving) -> None:
    """2^64-1 hits end at one burst of debt; nothing is rounded or overflows."""
    assert (await served.decide(hits_addend="3"))[1]["statuses"][0]["limitRemaining"] == 2
    assert (await served.decide(hitsAddend=str(2**64 - 1)))[0] == 429
    assert (await served.decide(hitsAddend="0"))[1]["statuses"][0]["durationUntilReset"] == "60s"


async def test_a_shadow_rule_passes_in_json_too(served: Serving) -> None:
    """The status says what is left, and nobody is refused."""
    answers = [await served.decide(key="shadow") for _ in range(7)]
    assert {(status, answer["overallCode"]) for status, answer in answers} == {(200, "OK")}
    assert "limitRemaining" not in answers[6][1]["statuses"][0]


async def test_headers_and_metadata_are_part_of_the_json() -> None:
    """For the client to pass on: they are no headers of this answer."""
    options = Options(headers=HeaderNames(), dynamic_metadata=True)
    async with serving(options) as served:
        status, answer = await served.decide(hitsAddend="2")
    assert status == 200
    assert answer["responseHeadersToAdd"] == [
        {"key": "RateLimit-Limit", "value": "5"},
        {"key": "RateLimit-Remaining", "value": "3"},
        {"key": "RateLimit-Reset", "value": "24"},
    ]
    assert answer["dynamicMetadata"] == {
        "domain": "d",
        "descriptors": [{"entries": ["five=bob"], "hitsAddend": 2}],
        "metadata": {"tier": "free"},
    }


async def test_a_failing_store_is_503_and_no_decision(served: Serving) -> None:
    """The reference server says 400, which blames the client."""
    served.store.error = StoreError("the disk is gone", kind="lost")
    body = '{"domain": "d", "descriptors": [{"entries": [{"key": "five"}]}]}'
    told = "the store did not answer (lost); the server's log has more\n"
    assert await served.post(body) == (503, told)
    served.store.error = None
    assert (await served.decide())[0] == 200


async def test_a_store_that_hangs_is_503_in_time(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a deadline, although HTTP has none, and the service gets to know it."""
    monkeypatch.setattr(http, "ANSWER_S", 0.2)
    served.store.hold = True
    body = '{"domain": "d", "descriptors": [{"entries": [{"key": "five"}]}]}'
    late = "the store did not answer (deadline); the server's log has more\n"
    assert await served.post(body) == (503, late)


async def test_a_fault_in_a_decision_is_500_and_tells_no_secrets(
    served: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """Logged once, with its traceback."""
    served.store.error = RuntimeError("password=hunter2")
    body = '{"domain": "d", "descriptors": [{"entries": [{"key": "five"}]}]}'
    assert await served.post(body) == (500, "a fault of this server; its log has more\n")
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.exc_info is not None


async def test_an_unknown_code_is_500(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no decision, so no client may take it for one."""

    async def undecided(*_: Any, **__: Any) -> bytes:
        return b""

    monkeypatch.setattr(served.server._service, "should_rate_limit", undecided)  # noqa: SLF001
    assert await served.post("{}") == (500, "{}")


async def test_many_at_once_are_decided_exactly(served: Serving) -> None:
    """Five of thirty pass."""
    answers = await asyncio.gather(*[served.decide() for _ in range(30)])
    assert sorted(status for status, _ in answers) == [200] * 5 + [429] * 25


async def test_decisions_may_be_off_and_nothing_is_charged() -> None:
    """Whatever is posted; the other pages are there as ever."""
    reason = "decisions over HTTP are off: because"
    async with serving(why_no_decisions=reason) as served:
        body = '{"domain": "d", "descriptors": [{"entries": [{"key": "five", "value": "bob"}]}]}'
        for sent in (body, "}", ""):
            assert await served.post(sent) == (403, f"{reason}\n")
        assert await served.get("/healthcheck") == (200, "OK")
        assert (await served.get("/json"))[0] == 405
        assert not served.store.was_asked.is_set()
