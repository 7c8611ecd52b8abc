"""What others named reaches no terminal raw: tables, notes, errors and JSON of every command."""

import asyncio
import json
import os
import sqlite3
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock.cli import main
from penstock.cli.columns import table_lines
from penstock.config.flags import DECLARED
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.foreign_text import is_plain
from penstock.core.keys import rule_key
from penstock.core.limits import Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.open import open_store
from penstock.store.policy_port import Change
from penstock.store.sqlite.schema import open_file

from tests.support.processes import PENSTOCK

NOW = 1_794_792_780_000
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b2J\u202egnp\u2028x"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\x9b2J\u202egnp\u2028x"
RULES_KEY = r"%1b[2J%1b]0;owned%07%9b2J%202egnp%2028x"
FORGED = f"{HOSTILE}\npenstock: error: forged"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `penstock …` on a new store: its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    open_file(Path("penstock.db"), "NORMAL").close()
    for setting in DECLARED:
        monkeypatch.delenv(setting.env, raising=False)

    def type_in(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(list(arguments))
        except SystemExit as exc:  # of argparse
            code = int(str(exc.code))
        return code, *capsys.readouterr()

    return type_in


@pytest.fixture
def _others_names(run: Run) -> None:  # noqa: ARG001 - in its directory
    """A store that somebody else filled, past every check of ours, as with another tool."""

    async def fill() -> None:
        store = await open_store("sqlite:///penstock.db")
        change = Change(HOSTILE, NOW)
        limits = (Limit.per(5, 60_000, name=HOSTILE),)
        metadata = {HOSTILE: HOSTILE, "long": "x" * 100_000}
        await store.policy.write_entity(Entity("parent"), change)
        await store.policy.write_entity(Entity("bob", "parent", metadata=metadata), change)
        await store.policy.write_limits(Scope("bob"), StoredLimits(limits, 0), change)
        await store.policy.write_limits(Scope(), StoredLimits(limits, 0), change)
        draws = (Draw(0, 1_000, Mode.TAKE),)
        for entity in ("bob", HOSTILE):
            await store.take([Take(Key(entity, "gpt-4"), limits, draws)], NOW)
        await store.close()

    asyncio.run(fill())
    with sqlite3.connect("penstock.db") as db:
        db.execute("UPDATE entity SET name = ? WHERE name = 'bob'", (HOSTILE,))
    db.close()


COMMANDS = [
    ("entity", "list"),
    ("entity", "show", "parent"),
    ("entity", "children", "parent"),
    ("limits", "list"),
    ("limits", "show"),
    ("limits", "show", "--entity", "bob"),
    ("bucket", "list", "--resource", "gpt-4"),
    ("bucket", "show", "bob", "gpt-4"),
    ("audit", "bob"),
    ("audit", "--system"),
]


@pytest.mark.usefixtures("_others_names")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_what_is_stored_raw(run: Run, command: tuple[str, ...]) -> None:
    """Whoever wrote it, and by whatever means; and a script reads what is stored, all of it."""
    code, out, err = run(*command)
    assert code == 0
    assert all(map(is_plain, f"{out}{err}".split("\n")))
    assert max(map(len, out.split("\n"))) < 11_000
    code, as_json, _ = run(*command, "--json")
    assert code == 0
    assert all(map(is_plain, as_json.split("\n")))
    values = json.dumps(json.loads(as_json), ensure_ascii=False)
    if command[1:] != ("show", "parent"):
        assert SHOWN in out
        assert json.dumps(HOSTILE, ensure_ascii=False)[1:-1] in values


@pytest.mark.usefixtures("_others_names")
def test_an_export_is_not_raw_either(run: Run) -> None:
    """It is YAML, which has escapes of its own."""
    code, out, _ = run("policy", "export")
    assert code == 0
    assert all(map(is_plain, out.split("\n")))
    assert "\\e[2J" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("entity", "show", FORGED),
        ("entity", "create", "a", "--parent", FORGED),
        ("entity", "create", "a", "--metadata", f"a={FORGED}"),
        ("entity", "create", "a", "--by", FORGED),
        ("entity", "update", "a", "--no-parent", "--version", FORGED),
        ("limits", "set", FORGED),
        ("limits", "set", f"a={FORGED}"),
        ("limits", "set", f"{FORGED}=1/s"),
        ("limits", "set", "--on-unavailable", FORGED),
        ("limits", "show", "--entity", FORGED),
        ("limits", "list", "--resource", FORGED),
        ("bucket", "show", FORGED, "r"),
        ("bucket", "show", FORGED, "$domain:d"),
        ("bucket", "list", "--resource", f"$domain:{FORGED}"),
        ("bucket", "reset", "a", f"${FORGED}"),
        ("audit", FORGED),
        ("audit", f"$RESOURCE:{FORGED}"),
        ("audit", "a", "--last", FORGED),
        ("policy", "diff", "-f", FORGED),
        ("config", "check", FORGED),
        ("check", "--domain", "d", FORGED),
        ("check", "--domain", "d", "--hits", FORGED, "a=b"),
        ("check", "--domain", "d", "--timeout", FORGED, "a=b"),
        ("table", "status", "--store", f"dynamodb://{FORGED}"),
        ("entity", "list", "--store", FORGED),
        ("entity", "list", "--store", f"sqlite:///{FORGED}/x.db"),
        ("entity", "list", FORGED),
        ("entity", "list", "--prefix", FORGED),
        ("entity", "list", "--parent", FORGED),
        ("entity", "list", "--limit", FORGED),
        ("top", "--address", FORGED),
        ("top", "--interval", FORGED),
        ("completion", FORGED),
        (FORGED,),
        ("serve", "--grpc-port", FORGED),
        ("serve", "--config", FORGED),
        ("serve", "--config", "rules.yaml", "--store", FORGED),
    ],
)
def test_an_error_shows_names_escaped_in_one_line(run: Run, arguments: tuple[str, ...]) -> None:
    """Also those of the one who typed them: a script may have put them there."""
    Path("rules.yaml").write_text("domain: d\n")
    code, out, err = run(*arguments)
    assert code in {1, 2}
    assert "\\x1b[2J" in err
    for line in f"{out}{err}".split("\n"):
        assert is_plain(line)
        assert not line.startswith("penstock: error: forged")
    assert "Traceback" not in err


def test_a_rules_file_reaches_no_terminal_raw(run: Run) -> None:
    """YAML has escapes for everything."""
    Path("rules.yaml").write_text(
        'domain: "d\\e[2J"\n"\\e]0;owned\\a": 1\n'
        'descriptors: [{key: "k\\u202e", rate_limit: {unit: "\\e[2J\\nfake:1: x"}}]\n'
    )
    code, out, err = run("config", "check", "rules.yaml")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        r"rules.yaml:2: config error, unknown key '\x1b]0;owned\x07'",
        r"rules.yaml:3: invalid rate limit unit '\x1b[2J\nfake:1: x'",
        "2 errors: these rules can't be used",
    ]
    Path("rules.yaml").write_text(
        'domain: "d\\e[2J"\n'
        'descriptors: [{key: "k\\u202e", rate_limit: {unit: day, requests_per_unit: 1}}]\n'
    )
    code, out, _ = run("config", "check", "--print", "rules.yaml")
    assert (code, out.startswith(r"d\x1b[2J.k\u202e: unit=DAY")) == (0, True)


def test_a_bucket_of_a_rule_can_be_named_whatever_its_descriptor_holds(run: Run) -> None:
    """As `bucket list` shows it, so `bucket show` takes it."""
    key = rule_key("d", (("user", HOSTILE),))
    limit = (Limit.per(5, 60_000),)

    async def take() -> None:
        store = await open_store("sqlite:///penstock.db")
        await store.take([Take(key, limit, (Draw(0, 1_000, Mode.TAKE),))], NOW)
        await store.close()

    asyncio.run(take())
    assert key.entity == f"user={RULES_KEY}"
    code, out, _ = run("bucket", "show", key.entity, key.resource)
    assert (code, out.splitlines()[0]) == (0, f"user={RULES_KEY} on $domain:d")


@pytest.mark.parametrize("entity", ["\udcff", "user=\x1b[2J", "user=\u202e"])
def test_no_bucket_of_a_rule_has_such_a_name(run: Run, entity: str) -> None:
    """So it is refused before a store is asked, which might not know what to make of it."""
    for arguments in ((entity, "$domain:d"), ("a=b", f"$domain:{entity}")):
        for action in ("show", "reset"):
            code, _, err = run("bucket", action, *arguments)
            assert (code, "has characters that can't be printed" in err) == (2, True)


def test_the_name_that_an_error_proposes_is_that_of_the_bucket(run: Run) -> None:
    """An operator copies what a client has sent."""
    _, _, err = run("bucket", "show", "user=\x1b[2J", "$domain:d")
    proposed = err.partition(": write '")[2].partition("' instead")[0]
    assert proposed == rule_key("d", (("user", "\x1b[2J"),)).entity


def test_columns_stand_below_each_other_whatever_is_in_them() -> None:
    """What is escaped is measured as it is shown, and what is cut as it is cut."""
    names = ("a", HOSTILE, "x" * 5_000, "👩‍👩‍👧", "می‌خواهم", "東京")
    lines = table_lines(("NAME", "PARENT"), [(name, "|") for name in names])
    ends = {columns_of(line) for line in lines[1:]}
    assert len(ends) == 1
    assert max(map(len, lines)) < 1_100


def columns_of(line: str) -> int:
    """Columns, counted in another way than the code has."""
    columns = 0
    for char in line:
        if unicodedata.category(char) not in {"Mn", "Me", "Cf"}:
            columns += 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
    return columns


def test_a_terminal_without_the_letters_gets_them_escaped(tmp_path: Path) -> None:
    """A name is no error, whatever the encoding of the terminal."""
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [str(PENSTOCK), "entity", "create", "--create", "Zoë"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"entity Zo\\xeb: created\n")
