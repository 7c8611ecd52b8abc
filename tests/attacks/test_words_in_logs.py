"""What clients send stays out of the log of a real server: nothing forged, raw or long.

The built-in keys `entity`, `resource` and `limit` are open to every client of a known domain.
"""

import json
import re
from pathlib import Path

import grpc
import pytest
from penstock.cli import main
from penstock.core.foreign_text import is_plain
from penstock.core.request import Descriptor, Request
from penstock.transport.codec import METHOD, SERVICE, encode_request

from tests.support.processes import PATIENCE_S, penstock
from tests.support.web import get, post

RULES = """\
domain: d
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}, detailed_metric: true}
"""

FORGED = "2026-01-01 00:00:00,000 ERROR the key is s3cret"
RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) ")
LONG = "x" * 10_000
"""Longer than a line of the log, and short enough for every transport."""

VALUES = (
    LONG,
    f"no\n{FORGED}",
    f"no\r\n{FORGED}",
    f"no\u2028{FORGED}\x85{FORGED}\x0b{FORGED}",
    "\x1b[2J\x1b]0;owned\x07\x1bP",
    "\x9b2J\x9d0;owned\x9c",
    "\u202egnp.live\u2066",
)


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rules, and beside them a store with a limit, so that others are missing."""
    monkeypatch.chdir(tmp_path)
    assert main(["limits", "set", "--create", "--resource=gpt-4", "rpm=5/day"]) == 0
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def attack(address: str) -> None:
    """Send each value wherever a client may choose one."""
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )
        for value in VALUES:
            for entries in (
                (("entity", "bob"), ("resource", "gpt-4"), ("limit", value)),
                (("entity", value), ("resource", "gpt-4"), ("limit", f"{value[:999]} too")),
                (("user", value),),
                ((value, value),),
            ):
                call(encode_request(Request("d", (Descriptor(entries),))), timeout=PATIENCE_S)
            call(
                encode_request(Request(value, (Descriptor((("user", "bob"),)),))),
                timeout=PATIENCE_S,
            )


@pytest.mark.parametrize("level", ["info", "debug"])
def test_no_line_of_the_log_is_a_client_s(tmp_path: Path, rules: Path, level: str) -> None:
    """Each line is a record of ours, that a terminal can show, and none is long."""
    with penstock(tmp_path, rules=rules, env={"LOG_LEVEL": level}) as server:
        attack(server.address)
        assert server.terminate() == 0
        log = server.log()
    assert "limit gpt-4/no\\n2026-01-01" in log
    assert "limit gpt-4/\\x1b[2J\\x1b]0;owned\\x07" in log
    assert "… (10,006 characters) does not exist" in log
    for line in log.removesuffix("\n").split("\n"):
        assert RECORD.match(line), line[:200]
        assert is_plain(line)
        assert not line.startswith(FORGED)
        assert len(line) < 5_000


def test_no_line_of_json_is_a_client_s(tmp_path: Path, rules: Path) -> None:
    """Nor does a message do anything once it is read from the JSON and shown."""
    env = {"LOG_FORMAT": "json", "LOG_LEVEL": "debug"}
    with penstock(tmp_path, rules=rules, env=env) as server:
        attack(server.address)
        assert server.terminate() == 0
        lines = [json.loads(line) for line in server.log().splitlines()]
    messages = [str(line["@message"]) for line in lines]
    assert any("limit gpt-4/no\\n2026-01-01" in message for message in messages)
    assert all(map(is_plain, messages))
    assert max(map(len, messages)) < 5_000


def test_no_page_shows_what_a_client_sent_raw(tmp_path: Path, rules: Path) -> None:
    """Detailed metrics have clients' values in them, and so has a complaint about JSON."""
    hostile = json.dumps({"domain": "d", "descriptors": [{"\x1b[2J\u202e\x9b": 1}]})
    with penstock(tmp_path, rules=rules) as server:
        attack(server.address)
        pages = [get(server.http, "/metrics"), get(server.debug, "/stats")]
        pages.append(post(server.http, "/json", hostile))
        pages.append(post(server.http, "/json", json.dumps({LONG: 1})))
    assert [page.status for page in pages] == [200, 200, 400, 400]
    for page in pages:
        assert all(map(is_plain, page.text.split("\n")))
        assert max(map(len, page.text.split("\n"))) < 1_000
    assert "user_\\\\x1b[2J" in pages[0].text
    assert "x… (10,005 characters)" in pages[0].text
