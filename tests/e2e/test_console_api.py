"""The JSON of the console, on a real server with workers: as its page says, and to whom it says."""

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from penstock.cli.styled import text_of
from penstock.cli.top_client import Snapshot, View
from penstock.cli.top_frame import head_lines
from penstock.console.console import VIEWS

from tests.e2e.console_store import RULES, fill_store
from tests.support.markdown import ROOT
from tests.support.processes import PATIENCE_S, Penstock, penstock, wait_for
from tests.support.rules import replace_rules
from tests.support.web import Page, decide, get, post

DOCS = ROOT / "docs/console.md"
SECTION = re.compile(r"^### `/api/(\w+)`$", re.MULTILINE)
TOKEN = "a-token-of-this-test"  # noqa: S105 - of no other server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """Two workers, after some requests: of each kind some are denied."""
    folder = tmp_path_factory.mktemp("console")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    store = fill_store(folder)
    with penstock(folder, "--workers", "2", rules=rules, store=store) as server:
        for _ in range(12):
            decide(server.http, "shop", ("user", "bob"))
            decide(server.http, "shop", ("tried", "bob"))
            decide(server.http, "shop", ("api_key", "user-1"), ("model", "gpt-4"))
        yield server


def read(server: Penstock, path: str) -> Any:
    page = get(server.debug, f"/api/{path}")
    assert (page.status, page.headers["content-type"]) == (200, "application/json"), page.text
    return json.loads(page.text)


def documented() -> dict[str, tuple[list[str], dict[str, str]]]:
    """For each view: its parameters, and the type of each field."""
    names, views = SECTION.split(DOCS.read_text())[1:], {}
    for name, text in zip(names[::2], names[1::2], strict=True):
        cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table_rows(text)]
        fields = {row[0]: row[1] for row in cells if row[1] in TYPES}
        views[name] = ([row[0] for row in cells if row[1] not in TYPES], fields)
    return views


TYPES = {
    "int", "text", "bool", "object", "any", "int or null", "text or null", "object or null",
    "amount", "amount or null", "list of object", "list of text", "list of int",
}  # fmt: skip


def table_rows(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if re.match(r"\| `", line):
            yield line


def kinds(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each field of an answer, with its type."""
    if isinstance(value, list):
        of = {kind(item) for item in value}
        yield path, f"list of {of.pop()}" if len(of) == 1 else f"list of {sorted(of)}"
        for item in value:
            if isinstance(item, dict):
                yield from kinds(item, f"{path}[]")
        return
    if path and not path.endswith("[]"):
        yield path, kind(value)
    if isinstance(value, dict):
        for name, item in value.items():
            is_free = path.endswith((".metadata", ".amounts"))
            part = "*" if is_free else name
            yield from kinds(item, f"{path}.{part}" if path else part)


def kind(value: Any) -> str:
    if value is None:
        return "null"
    types = {bool: "bool", int: "int", float: "amount", str: "text", dict: "object", list: "list"}
    return types[type(value)]


QUERIES = {
    "overview": [""],
    "top": ["?by=requests&of=rule&over=hour", "", "?of=resource", "?by=requests&limit=5"],
    "denials": ["", "?entity=user-1"],
    "rules": ["", "?limit=1", "?contains=vip"],
    "entities": ["", "?limit=1", "?parent=org-1"],
    "entity": ["?id=user-1", "?id=user%3Dbob", "?id=org-1", "?id=nobody&resource=gpt-4"],
    "usage": ["?id=user-1", "?id=user-1&window=month"],
    "audit": ["", "?subject=user-1", "?limit=1", "?subject=nobody"],
}


@pytest.mark.parametrize("view", VIEWS)
def test_answers_have_exactly_the_fields_of_the_page(server: Penstock, view: str) -> None:
    """With their types. A field that never comes, or that is not described, is found."""
    if view == "overview":
        wait_for(lambda: sum_of_points(server) >= 36, "the points of all requests")
    _, fields = documented()[view]
    opened = {field for field, what in fields.items() if what == "any"}
    seen: dict[str, set[str]] = {}
    for query in QUERIES[view]:
        for path, what in kinds(read(server, f"{view}{query}")):
            if not any(path.startswith((f"{field}.", f"{field}[")) for field in opened):
                seen.setdefault(path, set()).add(what)
    as_last_denial = {path for path in seen if path.startswith("rows[].last_denial.")}
    denial_fields = documented()["denials"][1]
    assert {path.replace("rows[].last_denial", "denials[]") for path in as_last_denial} <= (
        denial_fields.keys()
    )
    # An object is described by what is in it.
    plain = {path for path in seen if f"{path}." in " ".join(fields)} - fields.keys()
    assert seen.keys() - as_last_denial - plain == fields.keys()
    for path, whats in seen.items():
        if path in fields and fields[path] != "any":
            whats -= {"list of []"}
            assert whats <= allowed(fields[path]), (path, whats)


def sum_of_points(server: Penstock) -> int:
    points = read(server, "overview")["rates"]["points"]
    return sum(point["requests"] for point in points)


def allowed(text: str) -> set[str]:
    if text.endswith(" or null"):
        return {*allowed(text.removesuffix(" or null")), "null"}
    return {"amount", "int"} if text == "amount" else {text}


def test_parameters_are_those_of_the_page() -> None:
    """And there is no view that the page does not tell of."""
    described = {name: parameters for name, (parameters, _) in documented().items()}
    assert {name: sorted(view.parameters) for name, view in VIEWS.items()} == {
        name: sorted(parameters) for name, parameters in described.items()
    }


def test_counts_are_those_of_all_workers(server: Penstock) -> None:
    """Workers answer in turn, so each of them has seen only a part."""
    rows = {
        (row["entity"], row["resource"]): (row["requests"], row["denials"], row["error"])
        for row in read(server, "top?by=requests&over=hour")["rows"]
    }
    assert rows["user=bob", "$domain:shop"] == (12, 7, 0)
    assert rows["user-1", "gpt-4"] == (12, 2, 0)
    denials = read(server, "denials?entity=user-1")["denials"]
    assert [(one["limit"]["name"], one["limited"], one["passed"]) for one in denials] == [
        ("rpm", "user-1", False)
    ] * 2
    assert {one["passed"] for one in read(server, "denials?entity=tried%3Dbob")["denials"]} == {
        True
    }


def test_rules_that_can_not_be_used_are_told_until_they_are_mended(server: Penstock) -> None:
    """With the error, which quotes the file: it is escaped, and has a bound."""
    rules = Path(read(server, "overview")["rules"]["about"][0].removeprefix("rules from "))

    def told() -> dict[str, Any]:
        found: dict[str, Any] = read(server, "overview")["rules"]
        assert found["last_load_failed"] == bool(found["error"])
        return found

    broken = "\n".join(f'"key{number}\\e[2J": 1' for number in range(30))
    replace_rules(rules, f"{RULES}{broken}\n")
    wait_for(lambda: told()["last_load_failed"], "the error")
    lines = told()["error"].split("\n")
    assert re.search(r"rules\.yaml:\d+: .*unknown key 'key0\\x1b\[2J'", lines[0])
    assert (len(lines), lines[-1]) == (11, "… (20 more)")
    (line,) = [
        text_of(one) for one in head_lines(snapshot(server), "here") if "old rules" in text_of(one)
    ]
    assert line == f"the last load of rules failed, old rules stay: {lines[0]}"
    replace_rules(rules, RULES)
    wait_for(lambda: not told()["last_load_failed"], "the mended rules")
    assert told()["failed_loads"] >= 1
    assert not [one for one in head_lines(snapshot(server), "here") if "old rules" in text_of(one)]


def snapshot(server: Penstock) -> Snapshot:
    return Snapshot(View(), read(server, "overview"), {}, {})


def test_an_entity_has_its_parents_and_every_bucket(server: Penstock) -> None:
    """As a take would find them now."""
    (tree,) = read(server, "entity?id=user-1")["trees"]
    assert [level["entity"] for level in tree["levels"]] == ["user-1", "team-1", "org-1"]
    assert [level["buckets"][0]["balance"] for level in tree["levels"]] == [0, 40, 80]
    assert tree["levels"][0]["scope"] == "entity user-1, resource gpt-4"
    (tree,) = read(server, "entity?id=user%3Dbob")["trees"]
    assert tree["levels"][0]["buckets"][0]["burst"] == 5


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/api/top?by=x", 400, "by: 'x' is not one of requests, denials"),
        ("/api/nothing", 404, "no such view, there is overview, top"),
        ("/console/nothing.js", 404, "no such page"),
        ("/console/../rlconfig", 404, "no such page"),
    ],
)
def test_what_is_wrong_is_said(server: Penstock, path: str, status: int, text: str) -> None:
    """With a status that scripts understand."""
    page = get(server.debug, path)
    assert page.status == status
    assert text in page.text


def test_the_console_changes_nothing(server: Penstock) -> None:
    """No other method is allowed, and every answer tells a browser to be strict."""
    for path in ("/console", "/api/top"):
        assert post(server.debug, path, {}).status == 405
        headers = get(server.debug, path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert "/console: who is limited now" in get(server.debug, "/").text


def ask(address: str, path: str, headers: Mapping[str, str]) -> Page:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        return Page(response.status, response.read().decode(), dict(response.getheaders()))
    finally:
        connection.close()


def test_a_slash_at_the_end_leads_to_the_page(server: Penstock) -> None:
    """The paths in the page are relative to /console. Who may not see the page is not led there."""
    page = ask(server.debug, "/console/", {})
    assert (page.status, page.headers["Location"]) == (308, "../console")
    assert ask(server.debug, "/console/", {"Host": "evil.example:6070"}).status == 403


def test_a_name_of_the_web_that_leads_here_is_refused(server: Penstock) -> None:
    """DNS rebinding: the browser of somebody on this machine would ask with such a name."""
    for path in ("/console", "/api/top"):
        assert ask(server.debug, path, {"Host": "evil.example:6070"}).status == 403
        assert ask(server.debug, path, {"Host": "localhost:6070"}).status == 200


def own_address() -> str | None:
    """An address of this machine that is not loopback. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def test_a_token_opens_the_console_to_other_machines(tmp_path: Path) -> None:
    """And is needed on this machine, too. It is in no log."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    env = {"PENSTOCK_CONSOLE_TOKEN": TOKEN, "PENSTOCK_CONSOLE_VALUES": "hidden"}
    with penstock(tmp_path, rules=rules, store="memory:", env=env) as server:
        right = {"Authorization": f"Bearer {TOKEN}", "Host": "limits.example"}
        assert ask(server.debug, "/api/overview", right).status == 200
        wrong = ask(server.debug, "/api/overview", {"Authorization": f"Bearer {TOKEN}x"})
        assert (wrong.status, wrong.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert ask(server.debug, "/api/overview", {}).status == 401
        assert ask(server.debug, "/console", {}).status == 200
        assert ask(server.debug, "/rlconfig", {}).status == 200
        hidden = ask(server.debug, "/api/entities", right)
        assert (hidden.status, "PENSTOCK_CONSOLE_VALUES" in hidden.text) == (403, True)
        assert TOKEN not in server.log()


def test_other_machines_are_refused_without_a_token(tmp_path: Path) -> None:
    """A client that comes by another address of this machine stands for them."""
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    flags = ("--debug-host", "0.0.0.0")  # noqa: S104 - that is what is tested
    with penstock(tmp_path, *flags, rules=rules, store="memory:") as server:
        port = server.debug.rpartition(":")[2]
        for path in ("/console", "/api/overview"):
            assert ask(f"{address}:{port}", path, {"Host": f"127.0.0.1:{port}"}).status == 403
            assert ask(f"127.0.0.1:{port}", path, {}).status == 200
        assert ask(f"{address}:{port}", "/rlconfig", {}).status == 200
