"""From real traffic to a simulation: what a server recorded is decided again, the same way."""

import json
import os
import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.e2e.outage import Client
from tests.support.metrics import read_text, sample
from tests.support.processes import PATIENCE_S, PENSTOCK, penstock, wait_for
from tests.support.web import decide, get

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: example
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 4}}
  - {key: user, value: eve, rate_limit: {unit: day, requests_per_unit: 2}}
"""
SECRET = "a secret of some length"  # noqa: S105 - of this test
CONNECTIONS = 4
"""To two workers: each has some of them."""


def simulate(folder: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(PENSTOCK), "simulate", "--json", *arguments],
        cwd=folder,
        env={**os.environ, "PENSTOCK_RECORD_HASH_KEY": SECRET},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_recording_of_two_workers_is_replayed_as_it_was_decided(tmp_path: Path) -> None:
    """Over gRPC and HTTP, with hashed names: the same users are denied, just as often."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    flags = ("--workers", "2", "--record-trace", "trace", "--record-hash", "user")
    environment = {"PENSTOCK_RECORD_HASH_KEY": SECRET}
    denied = Counter[str]()
    with ExitStack() as opened:
        server = opened.enter_context(penstock(tmp_path, *flags, rules=rules, env=environment))
        clients = []
        for _ in range(CONNECTIONS):
            options = (("grpc.use_local_subchannel_pool", 1),)
            channel = grpc.insecure_channel(server.address, options=options)
            clients.append(Client(opened.enter_context(channel)))
        for turn in range(24):
            user = ("bob", "eve", "amy")[turn % 3]
            outcome = clients[turn % CONNECTIONS].ask(user, timeout_s=PATIENCE_S)
            assert outcome.remaining is not None
            denied[user] += outcome.code == "OVER_LIMIT"
        denied["bob"] += decide(server.http, "example", ("user", "bob")).status == 429
        recorded = sample("penstock_recorded_requests_total")
        wait_for(
            lambda: read_text(get(server.http, "/metrics").text)[recorded] == 25,
            "all requests to be recorded",
        )
        assert server.terminate() == 0
    assert denied == {"bob": 5, "eve": 6, "amy": 4}
    assert len(list((tmp_path / "trace").iterdir())) == 2
    found = simulate(tmp_path, "--rules", "rules.yaml", "--trace", "trace")
    assert found["requests"] == 25
    assert found["out_of_order"] == found["bad_lines"] == 0
    assert found["cut_files"] == []
    by_limit = Counter[str]()
    for one in found["proposed"]["limited"]:
        by_limit[one["limit"]] += one["count"]
        assert one["entries"][0][1].startswith("hash:") == (one["limit"] == "example.user")
    # Only the name that a rule has is known again.
    assert by_limit == {"example.user": 9, "example.user_eve": 6}
