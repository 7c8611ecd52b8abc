"""Words that are nearly right: flags, commands, units, and names that are stored."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from penstock.core.limits import Limit
from penstock.core.take import Draw, Key, Take

from tests.unit.cli.command import run
from tests.unit.cli.conftest import Type, now_ms, take


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("limits", "set", "--resouce", "r"), "--resouce; did you mean --resource?"),
        (("limits", "set", "--entty=a", "x=1/s"), "--entty=a; did you mean --entity?"),
        (("serve", "--grpc-prot", "1"), "--grpc-prot 1; did you mean --grpc-port?"),
        (("check", "--domian", "d", "--domain", "d", "a=b"), "did you mean --domain?"),
        (("audit", "--system", "--zzz"), "unrecognized arguments: --zzz\n"),
        (("limit", "show"), "there is no 'limit'; did you mean limits? (choose from serve, check,"),
        (("limits", "sohw"), "there is no 'sohw'; did you mean show? (choose from set, show,"),
        (("limits", "set", "rpm=5/minuet"), "a duration such as 90s; did you mean minute?"),
        (("limits", "set", "rpm=5/M"), "a duration such as 90s; did you mean minute or month?"),
        (("limits", "set", "rpm=5/fortnight"), "a duration such as 90s\n"),
        (("check", "--domian", "d", "a=b"), "are required: --domain; did you mean --domain?"),
        (("usage", "x", "--window", "dya"), "there is no 'dya'; did you mean day?"),
        (("serve", "--log-format", "jsno"), "is not one of text, json; did you mean json?"),
        (("completion", "bsh"), "there is no 'bsh'; did you mean bash?"),
    ],
)
def test_what_was_meant_is_named(tmp_path: Path, command: tuple[str, ...], message: str) -> None:
    """With exit code 2, and the usage of the command that was typed."""
    ran = run(*command, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    if "unrecognized" in ran.err:
        assert f"usage: penstock {command[0]}" in ran.err


def test_a_minute_has_its_spellings(tmp_path: Path) -> None:
    """All but the one that may be a month."""
    for rate in ("5/m", "5/MIN", "5/Minute"):
        ran = run("limits", "set", "--create", f"rpm={rate}", cwd=tmp_path)
        assert (ran.code, ran.out) == (0, "system: rpm=5/minute\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("entity", "show", "usr-123"), "entity usr-123: not found; did you mean user-123?"),
        (("entity", "children", "project"), "entity project: not found; did you mean project-1?"),
        (("entity", "create", "x", "--parent", "project1"), "; did you mean project-1?"),
        (("entity", "update", "user-123", "--parent", "project1"), "; did you mean project-1?"),
        (("limits", "show", "--resource", "gtp-4"), "has no limits; did you mean gpt-4?"),
        (("limits", "show", "--entity", "user-12"), "the name; did you mean user-123?"),
        (("limits", "list", "--resource", "gtp-4"), "has no limits; did you mean gpt-4?"),
        (("bucket", "list", "--resource", "gpt4"), "no buckets; did you mean gpt-4?"),
        (("bucket", "show", "user-123", "gpt4"), "no limits; did you mean gpt-4?"),
        (("bucket", "show", "user-12", "gpt-4"), "not used lately; did you mean user-123?"),
        (("usage", "user-12"), "; did you mean user-123?"),
        (("usage", "--top", "--resource", "gpt4"), "; did you mean gpt-4?"),
        (("audit", "user-12"), "user-12: no changes found; did you mean user-123?"),
        (("audit", "--resource", "gpt4"), "no changes found; did you mean gpt-4?"),
        (("bucket", "list", "--resource", "gpt-4"), "resource gpt-4: no buckets\n"),
        (("entity", "show", "zzz"), "entity zzz: not found\n"),
    ],
)
def test_stored_names_are_suggested(type_in: Type, command: tuple[str, ...], message: str) -> None:
    """Entities and resources; and nothing where nothing is similar, or the name is right."""
    type_in("entity", "create", "project-1")
    type_in("entity", "create", "user-123", "--parent", "project-1")
    type_in("limits", "set", "--resource", "gpt-4", "rpm=5/minute")
    assert message in type_in(*command).err


def test_a_limit_is_suggested(type_in: Type) -> None:
    """Where usage of a limit is asked for that nothing was consumed of."""
    limit = Limit.per(5, 60_000, name="tpm")
    take([Take(Key("user-1", "gpt-4"), (limit,), (Draw(0, 1_000),))], now_ms())
    ran = type_in("usage", "user-1", "--limit", "tmp")
    assert (ran.code, "nothing was consumed of 'tmp'; did you mean tpm?" in ran.err) == (0, True)


def test_a_name_among_very_many_is_suggested(type_in: Type) -> None:
    """Also if it is far behind in the list, which is not read to its end."""
    with closing(sqlite3.connect("penstock.db")) as db, db:
        db.executemany(
            "INSERT INTO entity VALUES (?, NULL, 0, '{}', 1)", ((f"a{n}",) for n in range(5_000))
        )
    type_in("entity", "create", "tenant-7")
    ran = type_in("entity", "show", "tenant7")
    assert ran.err == "entity tenant7: not found; did you mean tenant-7?\n"
