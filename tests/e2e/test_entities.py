"""Stored entities, the whole way: commands as a user types them, servers, and a real Envoy."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from penstock.cli import main
from penstock.store.sqlite.schema import open_file

from tests.support.envoy import Envoy, EnvoyConfig, Node, Response, run_envoy
from tests.support.patient import wait_long_for_dynamodb
from tests.support.processes import Penstock, penstock, wait_for
from tests.unit.cli import command
from tests.unit.cli.command import Ran

pytestmark = [
    pytest.mark.usefixtures("transport"),
    # Each transport and each store. They know nothing of each other, so not each with each.
    pytest.mark.parametrize(
        ("transport", "store_url"),
        [("native", "sqlite"), ("native", "dynamodb"), ("grpcio", "sqlite")],
        indirect=True,
    ),
]

CACHE = ("--policy-cache-ttl", "200ms")
RULES = """\
domain: llm
entities:
  - keys: [api_key, model]
    entity: "{api_key}"
    resource: "{model}"
    consume: {rpm: 1, tpm: hits}
"""

Run = Callable[..., Ran]


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file, or a table made as a user makes it."""
    if request.param == "sqlite":
        open_file(tmp_path / "entities.db", "NORMAL").close()
        return f"sqlite:///{tmp_path}/entities.db"
    endpoint: str = request.getfixturevalue("dynamodb_url")
    name = re.sub(r"[^\w.-]", "-", tmp_path.name)
    url = f"dynamodb://entities-{name}?region=eu-west-1&endpoint={endpoint}"
    assert main(["table", "create", "--store", url]) == 0
    return url


@pytest.fixture
def run(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Types a command, for the store. The command runs in this process, which takes less time."""
    wait_long_for_dynamodb(monkeypatch)

    def run_command(*words: str, stdin: str = "", code: int = 0) -> Ran:
        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            monkeypatch.context() as patch,
        ):
            patch.setattr("sys.stdin", io.StringIO(stdin))
            returned = main([*words, "--store", store_url])
        done = Ran(returned, out.getvalue(), err.getvalue())
        assert done.code == code, f"{words}: {done}"
        return done

    return run_command


def check(server: Penstock, *words: str) -> str:
    """What `penstock check` prints."""
    done = command.check(server, *words, domain="llm")
    assert done.code in (0, 1), done.err
    return done.out


class Site(NamedTuple):
    """A server, and an Envoy in front of an application."""

    server: Penstock
    envoy: Envoy

    def call(self, api_key: str, **headers: str) -> Response:
        return self.envoy.get(x_api_key=api_key, x_model="gpt-4", **headers)

    def wait_for_status(self, api_key: str, status: int) -> None:
        """Call until the answer is so, as it is once a change is in force."""
        wait_for(lambda: self.call(api_key).status == status, f"{status} for {api_key}")

    def statuses(self, api_key: str, count: int) -> list[int]:
        return [self.call(api_key).status for _ in range(count)]


@contextmanager
def serve(folder: Path, store_url: str, sites: int = 1) -> Iterator[list[Site]]:
    """Run servers on one store, and an Envoy for each that limits by API key and model."""
    with ExitStack() as stack:
        running = []
        for number in range(sites):
            home = folder / f"site-{number}"
            home.mkdir()
            rules = home / "llm.yaml"
            rules.write_text(RULES)
            serving = penstock(home, *CACHE, rules=rules, store=store_url, patient=True)
            server = stack.enter_context(serving)
            envoy = stack.enter_context(run_envoy(home, _envoy_config(server)))
            running.append(Site(server, envoy))
        yield running


def _envoy_config(server: Penstock) -> EnvoyConfig:
    config = EnvoyConfig(server.port)
    config.rate_limit_filter["domain"] = "llm"
    headers = {"api_key": "x-api-key", "model": "x-model"}
    actions = [
        {"request_headers": {"header_name": header, "descriptor_key": key}}
        for key, header in headers.items()
    ]
    config.limit_by({"actions": actions})
    manager = config.listener("ingress")["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"].insert(0, _hits_from_header("x-tokens"))
    return config


def _hits_from_header(name: str) -> Node:
    """Makes a header's number the request's `hits_addend`."""
    kind = "type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config"
    value = {
        "object_key": "envoy.ratelimit.hits_addend",
        "format_string": {"text_format_source": {"inline_string": f"%REQ({name})%"}},
        "skip_if_empty": True,
    }
    typed = {"@type": kind, "on_request_headers": [value]}
    return {"name": "envoy.filters.http.set_filter_state", "typed_config": typed}


def limit_of(response: Response) -> str:
    """Which limit an answer names, and its level."""
    found = re.search(r'name="([^"]*)"', response.headers["x-ratelimit-limit"])
    assert found is not None, response.headers
    return found[1]


def test_the_worked_example(tmp_path: Path, store_url: str, run: Run) -> None:
    """Limits, a project, a user below it; a check, a look, a reset, and who did it all."""
    run("limits", "set", "--resource", "gpt-4", "rpm=100/minute", "tpm=10000/minute,burst=15000")
    run("entity", "create", "project-1")
    run("entity", "create", "user-123", "--parent", "project-1", "--cascade")
    run("limits", "set", "--entity", "project-1", "--resource", "gpt-4", "tpm=100000/minute")
    with serve(tmp_path, store_url) as [site]:
        checked = check(site.server, "entity=user-123,resource=gpt-4")
        assert checked.startswith("OK\n  entity=user-123,resource=gpt-4: OK, 99 left of 100 per")
        assert "(user-123/gpt-4/rpm)" in checked

        answer = site.call("user-123", x_tokens="500")
        assert (answer.status, limit_of(answer)) == (200, "user-123/gpt-4/tpm")
        shown = run("bucket", "show", "user-123", "gpt-4").out
        assert re.search(r"rpm .* of 100 +100/minute", shown), shown
        assert re.search(r"tpm .* of 15000 +10000/minute", shown), shown
        assert "rpm" not in run("bucket", "show", "project-1", "gpt-4").out
        assert run("bucket", "list", "--resource", "gpt-4").out == "project-1\nuser-123\n"

        assert run("bucket", "reset", "user-123", "gpt-4", "--yes").out.endswith("full again\n")
        assert " 100 of 100 " in run("bucket", "show", "user-123", "gpt-4").out
        events = run("audit", "project-1").out
    assert re.search(r"limits.write +entity project-1, resource gpt-4\n +\+ tpm: 100000/", events)
    assert events.index("limits.write") < events.index("entity.write")


def test_children_share_what_their_parent_has(tmp_path: Path, store_url: str, run: Run) -> None:
    """Of 5, the first takes the 3 it may and the second the 2 left, through two servers."""
    run("limits", "set", "--resource", "gpt-4", "rpm=3/year")
    run("limits", "set", "--entity", "project", "rpm=5/year")
    run("entity", "create", "project")
    for user in ("alice", "bob"):
        run("entity", "create", user, "--parent", "project", "--cascade")
    run("entity", "create", "loner", "--parent", "project")
    with serve(tmp_path, store_url, sites=2) as [one, two]:
        first = [site.call("alice") for site in (one, two, one, two)]
        second = [site.call("bob") for site in (two, one, two)]
        assert [answer.status for answer in first] == [200, 200, 200, 429]
        assert limit_of(first[-1]) == "alice/gpt-4/rpm"
        assert [answer.status for answer in second] == [200, 200, 429]
        assert limit_of(second[-1]) == "project/gpt-4/rpm"
        assert second[-1].headers["x-ratelimit-remaining"] == "0"
        # What was refused by the parent was not taken from the child.
        assert " 1 of 3 " in run("bucket", "show", "bob", "gpt-4").out
        assert "OVER_LIMIT" in (checked := check(one.server, "entity=bob,resource=gpt-4"))
        assert "(project/gpt-4/rpm), try again in" in checked
        # One that does not cascade, and one that nobody has stored, have only the resource's limit.
        for other in ("loner", "stranger"):
            assert two.statuses(other, 4) == [200, 200, 200, 429]


def _is_limited(site: Site) -> bool:
    return "x-ratelimit-limit" in site.call("alice").headers


def test_changes_are_in_force_while_servers_run(tmp_path: Path, store_url: str, run: Run) -> None:
    """A limit that is cut, a reset, a parent that is left, limits that go: each server obeys."""
    run("limits", "set", "rpm=100/year")
    run("entity", "create", "project")
    run("entity", "create", "alice", "--parent", "project", "--cascade")
    with serve(tmp_path, store_url, sites=2) as sites:
        assert [site.call("alice").status for site in sites] == [200, 200]

        run("limits", "set", "--entity", "project", "--resource", "gpt-4", "rpm=2/year")
        for site in sites:
            site.wait_for_status("alice", 429)
            assert limit_of(site.call("alice")) == "project/gpt-4/rpm"

        assert run("bucket", "reset", "project", "gpt-4", "--yes").out.endswith("full again\n")
        # A server that saw an empty bucket may go by that for a second.
        for site in sites:
            site.wait_for_status("alice", 200)
        assert " 0 of 2 " in run("bucket", "show", "project", "gpt-4").out

        run("entity", "update", "alice", "--no-cascade")
        for site in sites:
            site.wait_for_status("alice", 200)

        run("limits", "delete", "--yes")
        wait_for(lambda: not any(map(_is_limited, sites)), "no limit")
        exported = run("policy", "export").out
        assert run("policy", "diff", "-f", "-", stdin=exported).out == ""
        assert "rpm" in exported


def test_a_request_takes_once_from_one_limit_and_its_tokens_from_another(
    tmp_path: Path, store_url: str, run: Run
) -> None:
    """`consume: {rpm: 1, tpm: hits}`, with the hits that Envoy sends for the request."""
    run("limits", "set", "--resource", "gpt-4", "rpm=4/year", "tpm=1000/year")
    with serve(tmp_path, store_url) as [site]:
        sizes = ("600", "600", "300", "100", "1")
        answers = [site.call("alice", x_tokens=size) for size in sizes]
        assert [answer.status for answer in answers] == [200, 429, 200, 200, 429]
        assert limit_of(answers[1]) == "alice/gpt-4/tpm"
        shown = run("bucket", "show", "alice", "gpt-4").out
        assert " 1 of 4 " in shown
        assert " 0 of 1000 " in shown
