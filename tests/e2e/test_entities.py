"""Stored entities, the whole way: commands as a user types them, servers, and a real Envoy."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from penstock.store.sqlite.schema import open_file

from tests.support.envoy import Envoy, EnvoyConfig, Node, Response, run_envoy
from tests.support.processes import PENSTOCK, Penstock, penstock, wait_for
from tests.unit.cli.command import PATIENT

pytestmark = pytest.mark.usefixtures("transport")

CACHE = ("--policy-cache-ttl", "200ms")
RULES = """\
domain: llm
entities:
  - keys: [api_key, model]
    entity: "{api_key}"
    resource: "{model}"
    consume: {rpm: 1, tpm: hits}
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["sqlite", "dynamodb"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file, or a table made as a user makes it."""
    if request.param == "sqlite":
        open_file(tmp_path / "entities.db", "NORMAL").close()
        return f"sqlite:///{tmp_path}/entities.db"
    endpoint: str = request.getfixturevalue("dynamodb_url")
    name = re.sub(r"[^\w.-]", "-", tmp_path.name)
    url = f"dynamodb://entities-{name}?region=eu-west-1&endpoint={endpoint}"
    subprocess.run([str(PENSTOCK), "table", "create", "--store", url], check=True)
    return url


@pytest.fixture
def run(store_url: str) -> Run:
    """Types a command, for the store."""

    def run_command(
        *words: str, stdin: str | None = None, code: int = 0
    ) -> "subprocess.CompletedProcess[str]":
        command = [str(PENSTOCK), *words, "--store", store_url]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done

    return run_command


def check(server: Penstock, *words: str) -> str:
    """What `penstock check` prints."""
    command = [str(PENSTOCK), "check", "--address", server.address, "--domain", "llm"]
    command += [*PATIENT, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


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
            server = stack.enter_context(penstock(home, *CACHE, rules=rules, store=store_url))
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
        shown = run("bucket", "show", "user-123", "gpt-4").stdout
        assert re.search(r"rpm .* of 100 +100/minute", shown), shown
        assert re.search(r"tpm .* of 15000 +10000/minute", shown), shown
        assert "rpm" not in run("bucket", "show", "project-1", "gpt-4").stdout
        assert run("bucket", "list", "--resource", "gpt-4").stdout == "project-1\nuser-123\n"

        assert run("bucket", "reset", "user-123", "gpt-4", "--yes").stdout.endswith("full again\n")
        assert " 100 of 100 " in run("bucket", "show", "user-123", "gpt-4").stdout
        events = run("audit", "project-1").stdout
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
        assert " 1 of 3 " in run("bucket", "show", "bob", "gpt-4").stdout
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

        assert run("bucket", "reset", "project", "gpt-4", "--yes").stdout.endswith("full again\n")
        # A server that saw an empty bucket may go by that for a second.
        for site in sites:
            site.wait_for_status("alice", 200)
        assert " 0 of 2 " in run("bucket", "show", "project", "gpt-4").stdout

        run("entity", "update", "alice", "--no-cascade")
        for site in sites:
            site.wait_for_status("alice", 200)

        run("limits", "delete", "--yes")
        wait_for(lambda: not any(map(_is_limited, sites)), "no limit")
        exported = run("policy", "export").stdout
        assert run("policy", "diff", "-f", "-", stdin=exported).stdout == ""
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
        shown = run("bucket", "show", "alice", "gpt-4").stdout
        assert " 1 of 4 " in shown
        assert " 0 of 1000 " in shown
