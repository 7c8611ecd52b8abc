"""The quick start for LLM tokens, with a real Envoy: the files that users get, and their page."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.rls_client import XdsClient
from tests.support.envoy import CONFIG_FILE, ENVOY, EnvoyConfig, run_envoy
from tests.support.processes import penstock, wait_for
from tests.support.rules import by_the_year

pytestmark = pytest.mark.usefixtures("transport")

ENVOY_FILE = CONFIG_FILE.with_name("llm-tokens.yaml")
RULES = CONFIG_FILE.parents[1] / "config" / "llm-tokens.yaml"
PAGE = CONFIG_FILE.parents[2] / "docs" / "llm.md"

STREAM = (
    'data: {"choices": [{"delta": {"content": "Hi"}}], "usage": null}\n\n'
    'data: {"choices": [], "usage": {"prompt_tokens": 3, "total_tokens":  40}}\n\n'
    "data: [DONE]\n\n"
)


def test_the_configuration_is_valid_as_it_is() -> None:
    """Envoy accepts the file that users get, unpatched."""
    command = [str(ENVOY), "--mode", "validate", "--config-path", str(ENVOY_FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (None, [600, 200, None]),
        (STREAM, [960, 920, 880]),
        (json.dumps({"choices": []}), [1000, 1000, 1000]),
    ],
    ids=["as it is", "a stream of events", "no usage"],
)
def test_the_tokens_of_an_answer_are_charged_when_it_ends(
    tmp_path: Path, xds: XdsClient, answer: str | None, left: list[int | None]
) -> None:
    """What was used is taken from the budget, and past its end becomes debt."""
    bob = {"domain": "llm-tokens", "user": "bob"}
    with penstock(tmp_path, rules=by_the_year(RULES, tmp_path)) as server:
        config = EnvoyConfig(server.port, file=ENVOY_FILE)
        if answer is not None:
            config.answer_with(answer)
        with run_envoy(tmp_path, config) as envoy:
            for expected in left:
                assert envoy.get(x_user="bob").status == 200
                # Envoy reports after it answered: see the report arrive before the next request.
                wait_for(
                    lambda: xds.remaining(server.address, **bob) == expected,  # noqa: B023
                    f"{expected} to be left",
                )
            statuses = envoy.get(x_user="bob").status, envoy.get(x_user="carol").status
    assert statuses == (429 if left[-1] is None else 200, 200)


def test_the_page_has_the_commands_of_the_files() -> None:
    """And says how many answers pass: as many as the files make it."""
    page = PAGE.read_text()
    for file in (ENVOY_FILE, RULES):
        assert str(file.relative_to(CONFIG_FILE.parents[2])) in page
    assert "HTTP/1.1 429 Too Many Requests" in page
