"""What every command prints as JSON, compared with docs/cli.md."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from penstock.cli import build_parser
from penstock.cli.completion_words import find_commands
from penstock.core.bucket import Bucket
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.dynamodb.aws.location import Location

from tests.support.json_forms import Forms
from tests.support.processes import Penstock, penstock
from tests.unit.cli.command import PATIENT, Ran, write_rules
from tests.unit.cli.conftest import Type, now_ms, take
from tests.unit.cli.test_migrate import make_old, now_text
from tests.unit.store.dynamodb.bare_tables import aws, drop, locate
from tests.unit.store.dynamodb.single_items import single_item

RPM = Limit.per(60, 60_000, name="rpm")
POLICY = "entities: {org: {}, new: {parent: org}}\nresources: {gpt-4: {limits: {rpm: 5/minute}}}\n"


class Scripts:
    """Runs commands with --json, and compares what they print with the docs."""

    def __init__(self, type_in: Type) -> None:
        self.forms = Forms()
        self.ran: set[str] = set()
        self._type_in = type_in

    def __call__(self, command: str, *arguments: str, **given: Any) -> Any:
        ran: Ran = self._type_in(*command.split(), *arguments, "--json", **given)
        assert ran.code in {0, 1}, ran.err
        self.ran.add(command)
        value = json.loads(ran.out)
        self.forms.check(command, value)
        return value


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Penstock]:
    folder = tmp_path / "server"
    folder.mkdir()
    with penstock(folder, rules=write_rules(folder), store="memory:") as running:
        yield running


@pytest.fixture
def location(dynamodb_url: str) -> Iterator[Location]:
    """A table that does not exist yet."""
    location = locate(dynamodb_url, f"json-{uuid4().hex}")
    yield location
    drop(location)


def _change_policy(scripts: Scripts) -> None:
    scripts("entity create", "org", "--metadata", "team=search")
    scripts("entity create", "user", "--parent", "org", "--cascade")
    scripts(
        "limits set",
        "--resource",
        "gpt-4",
        "rpm=100/minute",
        "tpm=1000/minute,max_debt=5",
        "day=9/day,window=fixed",
    )
    scripts("limits set", "--on-unavailable", "deny", "rpm=1000/minute")
    scripts("entity update", "user", "--metadata", "a=b")
    Path("policy.yaml").write_text(POLICY)
    assert [one["action"] for one in scripts("policy diff", "-f", "policy.yaml")]
    assert scripts("policy apply", "-f", "policy.yaml", "--yes")
    assert scripts("policy apply", "-f", "policy.yaml", "--yes") == []
    assert scripts("policy apply", "-f", "policy.yaml", "--prune", answer="no\n") == []
    assert scripts("policy export")["limits"]


def _look(scripts: Scripts) -> None:
    assert len(scripts("entity list")) == 3
    assert scripts("entity list", "--prefix", "zzz") == []
    assert scripts("entity show", "user")["metadata"] == {"a": "b"}
    assert scripts("entity children", "org")
    assert scripts("limits list")
    scripts("limits show")
    scripts("limits show", "--entity", "user", "--resource", "none")
    scripts("limits show", "--entity", "new", "--resource", "gpt-4")
    take([Take(Key("new", "gpt-4"), (RPM,), (Draw(0, MILLI, Mode.TAKE),))], now_ms())
    assert scripts("bucket show", "new", "gpt-4")["parents"]
    assert scripts("bucket list", "--resource", "gpt-4")
    assert scripts("bucket reset", "new", "gpt-4", "--yes")["filled"]
    assert not scripts("bucket reset", "new", "gpt-4", answer="no\n")["filled"]
    assert not scripts("bucket reset", "nobody", "gpt-4", "--yes")["filled"]
    assert scripts("usage", "new")["windows"]
    assert scripts("usage", "org", "--children")["children"]
    assert scripts("usage", "--top", "--resource", "gpt-4")["top"]
    for subject in (("new",), ("org",), ("--system",), ("--resource", "gpt-4")):
        assert scripts("audit", *subject)


def _delete(scripts: Scripts) -> None:
    assert not scripts("limits delete", "--entity", "nobody", "--yes")["deleted"]
    assert not scripts("limits delete", answer="no\n")["deleted"]
    assert scripts("limits delete", "--yes")["deleted"]
    assert not scripts("entity delete", "new", answer="no\n")["deleted"]
    assert scripts("entity delete", "new", "--yes")["deleted"]
    assert scripts("audit", "new")[0]["after"] is None


def _files(scripts: Scripts) -> None:
    Path("good.yaml").write_text(
        "domain: d\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]\n"
    )
    Path("bad.yaml").write_text("domain: d\nwhat: 1\n")
    assert scripts("config check", "good.yaml", "--print")["rules"]
    assert scripts("config check", "bad.yaml")["errors"]
    rows = "\n".join(f"{1_794_792_780_000 + at},d,{who}" for at, who in enumerate("aabb"))
    Path("trace.csv").write_text(f"time,domain,user\n{rows}\n")
    Path("old.yaml").write_text("domain: d\n")
    replay = ("--trace", "trace.csv", "--rules", "good.yaml")
    assert scripts("simulate", *replay)["proposed"]["limited"]
    assert scripts("simulate", *replay, "--against", "old.yaml")["newly_limited"]
    scripts("gc")
    scripts("gc", "--dry-run")
    assert scripts("backup", "copy.db")["bytes"]
    make_old(("ip:10.0.0.1", 0, now_text()))
    scripts("migrate import", "old.db", "--resource", "api", "--dry-run")
    assert scripts("migrate import", "old.db", "--resource", "api")["brought_in"] == 1


def _table(scripts: Scripts, location: Location) -> None:
    store = ("--store", str(location))
    assert not scripts("table status", *store)["ready"]
    assert scripts("table create", *store)["created"]
    assert scripts("table status", *store)["facts"]
    bucket = Bucket(RPM, RPM.burst, 5 * MILLI)
    aws(location, "put_item", Item=single_item(Key("bob", "gpt-4"), bucket, now_ms()))
    assert scripts("migrate begin", *store)["begun"]
    assert scripts("migrate run", "--dry-run", *store)["left"] == 1
    assert scripts("migrate clean", "--yes", *store)["left"] == 1
    assert scripts("migrate run", *store)["converted"] == 1
    assert scripts("migrate verify", *store)["left"] == 0
    assert scripts("migrate clean", "--yes", *store)["deleted"] == 1
    assert scripts("aggregate", "--once", *store)["records"] > 0
    scripts("aggregate", "--set-aside", *store)
    assert scripts("table delete", "--yes", *store)["deleted"]
    assert not scripts("table delete", "--yes", *store)["deleted"]


def test_every_command_prints_what_the_docs_say(
    type_in: Type, server: Penstock, location: Location
) -> None:
    """The same keys, with values of the same types."""
    scripts = Scripts(type_in)
    _change_policy(scripts)
    _look(scripts)
    _delete(scripts)
    _files(scripts)
    _table(scripts, location)
    asked = ("--address", server.address, "--domain", "d", *PATIENT)
    scripts("check", *asked, "few=1", "free=1", "odd=1", "none=1")
    port = server.debug.rpartition(":")[2]
    assert scripts("top", "--address", f"127.0.0.1:{port}")["overview"]
    assert scripts.ran == set(scripts.forms.commands), "the docs have every command that has run"
    unused = set(scripts.forms.forms) - scripts.forms.used
    assert unused <= {"problem", "set aside"}, "and no form that no command prints"


def test_every_command_that_prints_an_answer_has_json() -> None:
    """All but the server, and what is a script already."""
    with_json = {
        " ".join(command.path)
        for command in find_commands(build_parser())
        if any("--json" in flag.names for flag in command.flags)
    }
    without = {
        " ".join(command.path) for command in find_commands(build_parser()) if not command.commands
    } - with_json
    assert with_json == set(Forms().commands)
    assert without == {"serve", "completion"}


def test_a_reader_of_json_sees_nothing_else(type_in: Type) -> None:
    """Notes are on stderr, and so is what is not found."""
    ran = type_in("entity", "show", "nobody", "--json")
    assert (ran.code, ran.out, ran.err) == (1, "", f"entity nobody: not found{os.linesep}")
