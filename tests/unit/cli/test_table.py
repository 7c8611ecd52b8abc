"""`penstock table`, as a user types it, on the real DynamoDB Local."""

import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from penstock.cli import main
from penstock.store.dynamodb.aws.location import Location

from tests.support.processes import PENSTOCK
from tests.unit.cli.command import Ran
from tests.unit.store.dynamodb.bare_tables import aws, bare_table, drop, index, item, locate, ttl_on

Penstock = Callable[..., Ran]

VERSION_KEY = item("SYSTEM#", "#VERSION")


@pytest.fixture
def location(dynamodb_url: str) -> Iterator[Location]:
    """A table that does not exist yet."""
    location = locate(dynamodb_url, f"cli-{uuid4().hex}")
    yield location
    drop(location)


@pytest.fixture
def place(location: Location) -> str:
    """As messages name it."""
    return f"table {location.table} in eu-west-1 at {location.endpoint}"


@pytest.fixture
def penstock(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, location: Location
) -> Penstock:
    """Runs `penstock table`, with the store in the environment, and nobody at the keyboard."""
    monkeypatch.setenv("PENSTOCK_STORE", str(location))

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with Path(os.devnull).open() as nothing, monkeypatch.context() as patch:
            patch.setattr("sys.stdin", nothing)
            code = main(["table", *arguments])
        return Ran(code, *capsys.readouterr())

    return run


def version_item(location: Location) -> Any:
    return aws(location, "get_item", Key=VERSION_KEY, ConsistentRead=True)["Item"]


def test_create_makes_a_table_that_is_ready(
    penstock: Penstock, location: Location, place: str
) -> None:
    """It says on standard error what it waits for, a line each, and the outcome on the other."""
    ran = penstock("create")
    assert (ran.code, ran.out) == (0, f"{place}: created\n")
    assert ran.err.splitlines() == [
        f"creating table {location.table} …",
        "adding the version item …",
        "adding TTL on 'ttl' …",
    ]
    ran = penstock("status")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(
        rf"""{re.escape(place)}
  status      active
  billing     on demand
  last count  1 item, \d+ bytes
  index GSI1  active
  index GSI2  active
  index GSI3  active
  TTL         on, by 'ttl'
  stream      NEW_AND_OLD_IMAGES
  schema      1 \(made by Penstock {re.escape(version("penstock-ratelimit"))}, \S+\+00:00\)
ready
""",
        ran.out,
    )


def test_indexes_over_buckets_hold_their_keys_only(penstock: Penstock, location: Location) -> None:
    """A take would otherwise be written twice."""
    penstock("create")
    table = aws(location, "describe_table")["Table"]
    assert {
        index["IndexName"]: index["Projection"]["ProjectionType"]
        for index in table["GlobalSecondaryIndexes"]
    } == {"GSI1": "ALL", "GSI2": "KEYS_ONLY", "GSI3": "KEYS_ONLY"}


def test_create_leaves_a_table_that_is_right_alone(
    penstock: Penstock, location: Location, place: str
) -> None:
    """So that a deployment may call it each time."""
    penstock("create")
    before = version_item(location)
    ran = penstock("create")
    assert (ran.code, ran.out, ran.err) == (0, f"{place}: exists already\n", "")
    assert version_item(location) == before
    assert before["schema"] == {"N": "1"}
    assert before["created_by"] == {"S": version("penstock-ratelimit")}


def test_a_flag_goes_before_the_environment(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, location: Location
) -> None:
    """As with every setting."""
    monkeypatch.setenv("PENSTOCK_STORE", "memory:")
    assert penstock("create").code == 2
    assert penstock("create", "--store", str(location)).code == 0
    assert penstock("status", "--store", str(location)).code == 0


def test_create_adds_all_that_is_missing(penstock: Penstock, location: Location) -> None:
    """To an empty table, as other tools make them: indexes one after the other, as AWS wants it."""
    aws(location, "create_table", **bare_table())
    before = penstock("status")
    assert before.code == 1
    lacks = "the version item, TTL on 'ttl', index GSI1, index GSI2, index GSI3"
    missing = lacks.replace(",", " is missing,")
    mend = f"run: penstock table create --store '{location}'"
    assert before.out.splitlines()[-1] == f"not ready: {missing} is missing; {mend}"
    assert "  index GSI1  missing\n" in before.out
    assert "  TTL         off\n" in before.out
    assert "  schema      unknown\n" in before.out
    ran = penstock("create")
    assert ran.code == 0
    assert ran.out.endswith(f": added {lacks}, the stream\n")
    # One that is there at the first look is not said to be building, so those lines may differ.
    added = [line for line in ran.err.splitlines() if line.startswith("adding index")]
    assert added == [f"adding index GSI{n} …" for n in (1, 2, 3)]
    assert "trying again" not in ran.err
    assert penstock("status").out.endswith("\nready\n")


def test_create_adds_the_one_thing_that_is_missing(penstock: Penstock, location: Location) -> None:
    """And leaves the rest as it is."""
    penstock("create")
    aws(location, "delete_item", Key=VERSION_KEY)
    ran = penstock("create")
    assert ran.code == 0
    assert ran.out.endswith(": added the version item\n")


def test_create_turns_on_the_stream(penstock: Penstock, location: Location) -> None:
    """With both images: usage is counted from it. A table without says what is missing."""
    assert penstock("create", "--no-stream").out.endswith(": created\n")
    ran = penstock("status")
    assert ran.code == 0, "servers can use it all the same"
    assert "  stream      off, so usage is not counted; run: penstock table create --st" in ran.out
    assert penstock("create").out.endswith(": added the stream\n")
    assert "  stream      NEW_AND_OLD_IMAGES\n" in penstock("status").out
    table = aws(location, "describe_table")["Table"]
    expected = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert table["StreamSpecification"] == expected
    assert penstock("create").out.endswith(": exists already\n")


def test_capacity_is_that_of_the_table_and_each_index(
    penstock: Penstock, location: Location
) -> None:
    """An index with less would slow down the table."""
    flags = ("--read-capacity", "3", "--write-capacity", "20")
    assert penstock("create", *flags).code == 0
    table = aws(location, "describe_table")["Table"]
    for each in (table, *table["GlobalSecondaryIndexes"]):
        units = each["ProvisionedThroughput"]
        assert (units["ReadCapacityUnits"], units["WriteCapacityUnits"]) == (3, 20)
    status = penstock("status")
    assert "  billing     provisioned, 3 read and 20 write units\n" in status.out
    again = penstock("create", *flags)
    assert (again.code, again.err) == (0, "")


def test_create_says_that_it_leaves_billing_alone(penstock: Penstock, place: str) -> None:
    """Something else may scale the table."""
    penstock("create")
    ran = penstock("create", "--read-capacity", "3", "--write-capacity", "20")
    assert (ran.code, ran.out) == (0, f"{place}: exists already\n")
    assert ran.err == f"{place}: its billing stays as it is: on demand\n"


def test_create_says_that_it_leaves_warm_throughput_alone(penstock: Penstock, place: str) -> None:
    """DynamoDB Local takes the parameter, and does not tell it."""
    warm = ("--warm-throughput", "40000,20000")
    assert penstock("create", *warm).out == f"{place}: created\n"
    ran = penstock("create", *warm)
    assert (ran.code, ran.out) == (0, f"{place}: exists already\n")
    assert ran.err == (
        f"{place}: its warm throughput stays as it is: unknown; "
        "to raise it, use `aws dynamodb update-table --warm-throughput`\n"
    )


def test_an_index_added_later_has_the_tables_capacity(
    penstock: Penstock, location: Location
) -> None:
    """AWS takes no index without, in a provisioned table."""
    units = {"ReadCapacityUnits": 2, "WriteCapacityUnits": 7}
    ours = [
        index(name, projection) | {"ProvisionedThroughput": units}
        for name, projection in [("GSI1", "ALL"), ("GSI2", "KEYS_ONLY")]
    ]
    table = bare_table(("PK", "SK"), *ours, BillingMode="PROVISIONED", ProvisionedThroughput=units)
    aws(location, "create_table", **table)
    assert penstock("create").code == 0
    for each in aws(location, "describe_table")["Table"]["GlobalSecondaryIndexes"]:
        assert each["ProvisionedThroughput"]["WriteCapacityUnits"] == 7


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--read-capacity", "5"), "give both --read-capacity and --write-capacity, or neither"),
        (("--write-capacity", "5"), "give both --read-capacity and --write-capacity, or neither"),
        (
            ("--read-capacity", "0", "--write-capacity", "5"),
            "--read-capacity: '0' is not a whole number from 1 to 999999999",
        ),
        (
            ("--read-capacity", "5", "--write-capacity", "1e3"),
            "--write-capacity: '1e3' is not a whole number from 1 to 999999999",
        ),
        *(
            (
                ("--warm-throughput", text),
                f"--warm-throughput: '{text}' is not READ,WRITE in units a second, "
                "such as 40000,20000",
            )
            for text in ("", "5000", "20000,", "20000;20000", "20000,-1", "1e5,2e5", "1,2,3")
        ),
        *(
            (
                ("--warm-throughput", text),
                f"a warm throughput of {text} is less than what the table has anyway: 12000,4000",
            )
            for text in ("11999,4000", "12000,3999")
        ),
        (
            ("--warm-throughput", "9,9", "--read-capacity", "3", "--write-capacity", "20"),
            "a warm throughput of 9,9 is less than what the table has anyway: 3,20",
        ),
    ],
)
def test_capacity_that_can_not_be_is_refused(
    penstock: Penstock, flags: tuple[str, ...], message: str
) -> None:
    """Before anything is made."""
    ran = penstock("create", *flags)
    assert (ran.code, ran.out, ran.err) == (2, "", f"penstock: error: {message}\n")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            bare_table(("id", "SK")),
            "its key is id (S), SK (S), not PK (S), SK (S): name another table",
        ),
        (
            bare_table(kind="N"),
            "its key is PK (N), SK (N), not PK (S), SK (S): name another table",
        ),
        (
            bare_table(("PK", "SK"), index("GSI1", "ALL", ("GSI1PK", "SK"))),
            "index GSI1 has the key GSI1PK (S), SK (S), not GSI1PK (S), GSI1SK (S): delete it; ",
        ),
        (
            bare_table(("PK", "SK"), index("GSI2", "ALL")),
            "index GSI2 projects ALL, not KEYS_ONLY: delete it; then run: penstock table create ",
        ),
    ],
)
def test_a_table_that_is_otherwise_is_left_as_it_is(
    penstock: Penstock, location: Location, place: str, table: dict[str, object], message: str
) -> None:
    """Neither a key nor an index can be changed, so people have to."""
    aws(location, "create_table", **table)
    before = aws(location, "describe_table")["Table"]
    ran = penstock("create")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"penstock: error: {place}: {message}")
    status = penstock("status")
    assert status.code == 1
    assert f"\nnot ready: {message}" in status.out
    assert aws(location, "describe_table")["Table"] == before


def test_ttl_on_another_attribute_is_an_error(penstock: Penstock, location: Location) -> None:
    """It may delete what it should not."""
    aws(location, "create_table", **bare_table())
    aws(location, "update_time_to_live", **ttl_on("expires"))
    ran = penstock("create")
    assert ran.code == 2
    assert ": TTL is on 'expires', not on 'ttl': turn it off; then run: " in ran.err
    assert "  TTL         on, by 'expires'\n" in penstock("status").out


def test_a_stream_of_another_kind_is_an_error_if_one_is_asked_for(
    penstock: Penstock, location: Location
) -> None:
    """Somebody else may read it, and then it is none of ours."""
    stream = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    ours = [index("GSI1", "ALL"), index("GSI2", "KEYS_ONLY"), index("GSI3", "KEYS_ONLY")]
    table = bare_table(("PK", "SK"), *ours, StreamSpecification=stream)
    aws(location, "create_table", **table)
    ran = penstock("create")
    assert ran.code == 2
    assert ": the stream shows KEYS_ONLY, not NEW_AND_OLD_IMAGES: turn it off, or give" in ran.err
    assert penstock("create", "--no-stream").code == 0
    assert (
        "  stream      KEYS_ONLY, so usage is not counted: it needs NEW" in penstock("status").out
    )


def test_a_table_of_a_newer_penstock_is_left_as_it_is(
    penstock: Penstock, location: Location
) -> None:
    """This one can't know what it holds."""
    penstock("create")
    aws(location, "put_item", Item={**VERSION_KEY, "schema": {"N": "3"}})
    ran = penstock("create")
    assert ran.code == 2
    message = "its schema is 3, and this Penstock knows 1: use a newer Penstock\n"
    assert ran.err.endswith(f": {message}")
    status = penstock("status")
    assert status.code == 1
    assert status.out.endswith(f"\nnot ready: {message}")


def test_a_table_that_somebody_else_uses_is_left_as_it_is(
    penstock: Penstock, location: Location, place: str
) -> None:
    """The names of its key are those that many use, and what is ours may be deleted."""
    aws(location, "create_table", **bare_table())
    aws(location, "put_item", Item=item("USER#1", "#META"))
    created, deleted = penstock("create"), penstock("delete", "--yes")
    assert (created.code, deleted.code) == (2, 2)
    assert created.err == (
        f"penstock: error: {place}: it has no version item, and it isn't empty, so it may be "
        "somebody else's: name another table\n"
    )
    assert deleted.err == (
        f"penstock: error: {place}: it has no version item, so it isn't Penstock's: not deleted\n"
    )
    assert aws(location, "scan")["Count"] == 1


def test_delete_refuses_a_table_with_another_key(penstock: Penstock, location: Location) -> None:
    """It can't hold a version item."""
    aws(location, "create_table", **bare_table(("id", "SK")))
    ran = penstock("delete", "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("so it isn't Penstock's: not deleted\n")


def test_status_of_a_table_that_is_not_there(
    penstock: Penstock, location: Location, place: str
) -> None:
    """Exit code 1, and the command that makes it."""
    ran = penstock("status")
    assert (ran.code, ran.err) == (1, "")
    mend = f"penstock table create --store '{location}'"
    assert ran.out == f"{place}\nnot ready: there is no such table; run: {mend}\n"


def test_delete_with_yes(penstock: Penstock, location: Location, place: str) -> None:
    """It waits until the table is gone, and does not mind to be called again."""
    penstock("create")
    ran = penstock("delete", "--yes")
    assert (ran.code, ran.out) == (0, f"{place}: deleted\n")
    assert ran.err == f"deleting table {location.table} …\n"
    assert penstock("status").code == 1
    again = penstock("delete", "--yes")
    assert (again.code, again.out, again.err) == (0, f"{place}: not found\n", "")


def test_delete_wants_a_yes_where_nobody_can_be_asked(penstock: Penstock) -> None:
    """As in a script."""
    penstock("create")
    ran = penstock("delete")
    assert (ran.code, ran.out) == (2, "")
    message = "can't ask, because the input is not a terminal: give --yes to delete the table"
    assert ran.err == f"penstock: error: {message}\n"
    assert penstock("status").code == 0


@pytest.mark.parametrize("action", ["create", "status", "delete"])
@pytest.mark.parametrize("store", ["sqlite:///x.db", "memory:", "DATABASE"])
def test_other_stores_have_no_table(penstock: Penstock, action: str, store: str) -> None:
    """They are ready as they are."""
    ran = penstock(action, "--store", store)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"penstock: error: store '{store}': only a store dynamodb://TABLE?region=REGION has a "
        "table; the others need no preparation\n"
    )


def test_no_store_is_no_table(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is a file."""
    monkeypatch.delenv("PENSTOCK_STORE")
    ran = penstock("status")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("penstock: error: store 'sqlite:///penstock.db': only a store ")


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("dynamodb://t?region=eu-west-1", "a table's name is 3 to 255 letters, digits, _ . or -"),
        ("dynamodb://table/more?region=eu-west-1", "write dynamodb://TABLE?region=REGION"),
        ("dynamodb://table?regoin=eu-west-1", "unknown option 'regoin'"),
        ("dynamodb://table?endpoint=localhost", "endpoint is a URL"),
        ("dynamodb://[table", "Invalid IPv6 URL"),
        ("dynamodb://table", "no region; add ?region="),
        ("dynamodb://table?region=no where", "Provided region_name 'no where' doesn't match"),
    ],
)
def test_a_wrong_url_is_told(penstock: Penstock, store: str, message: str) -> None:
    """With exit code 2, and what is wrong with it."""
    ran = penstock("status", "--store", store)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"penstock: error: store '{store}': ")
    assert message in ran.err


@pytest.mark.parametrize("action", ["create", "status", "delete"])
def test_help_has_examples(
    penstock: Penstock, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    """Of every command."""
    with pytest.raises(SystemExit, match="0"):
        penstock(action, "--help")
    example = f"penstock table {action} --store 'dynamodb://penstock?region=eu-west-1'\n"
    assert example in capsys.readouterr().out


def at_terminal(location: Location, typed: bytes, *arguments: str) -> tuple[int, str]:
    """Run on a terminal where somebody types; gives the exit code and what the screen got."""
    ours, theirs = pty.openpty()
    command = [str(PENSTOCK), "table", *arguments, "--store", str(location)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, typed)
        screen = b""
        # Linux says EIO when nobody has the other end open any more.
        with suppress(OSError):
            while part := os.read(ours, 4096):
                screen += part
        os.close(ours)
    return process.returncode, screen.decode().replace("\r\n", "\n")


def test_delete_asks_for_the_name(penstock: Penstock, location: Location, place: str) -> None:
    """An operator who types the name means to delete the table."""
    penstock("create")
    code, screen = at_terminal(location, f"{location.table}\n".encode(), "delete")
    assert f"This deletes {place} and everything in it, for ever.\n" in screen
    assert f"Type the table's name, {location.table}, to go on: " in screen
    assert code == 0
    assert screen.endswith(f"{place}: deleted\n")
    assert penstock("status").code == 1


@pytest.mark.parametrize("typed", [b"y\n", b"\n", b"\x04"])
def test_delete_takes_nothing_else_for_a_yes(
    penstock: Penstock, location: Location, place: str, typed: bytes
) -> None:
    """Neither a habit nor an end of input; exit code 1."""
    penstock("create")
    code, screen = at_terminal(location, typed, "delete")
    assert code == 1
    assert screen.endswith(f"{place}: kept\n")
    assert penstock("status").code == 0


def test_progress_on_a_terminal_is_one_line(location: Location, place: str) -> None:
    """It is written over, and gone when all is done. What takes less than a second has none."""
    code, screen = at_terminal(location, b"", "create")
    assert code == 0
    *over, last = screen.split("\r\x1b[K")
    assert last == f"{place}: created\n"
    assert all(re.fullmatch(r"(creating|adding) .* … \d+ s", line) for line in over if line)
