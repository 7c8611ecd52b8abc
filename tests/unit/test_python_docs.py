"""The examples of docs/python.md work as the page says."""

import ast
import re
import shlex
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import httpx
import penstock
import pytest
from penstock.cli import main
from penstock.client import embedded
from penstock.core.usage import Window
from penstock.store.open import open_store

from tests.support.gates import Clock, on_record, serving
from tests.support.markdown import FENCE, ROOT, table

PAGE_FILE = ROOT / "docs/python.md"
PAGE = PAGE_FILE.read_text()
USAGE_PAGE = (ROOT / "docs/usage.md").read_text()
EXAMPLES = [body for language, body in FENCE.findall(PAGE) if language == "python"]
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
STORE = "sqlite:///limits.db"
TODAY_MS = Window.DAY.start_ms(time.time_ns() // 1_000_000)
"""The examples ask for the usage of the last days."""


@dataclass(frozen=True)
class Answer:
    text: str = "Because of Rayleigh."
    tokens: int = 420


async def call_model(_: str) -> Answer:
    return Answer()


async def execute(example: str, names: dict[str, Any]) -> None:
    """Run an example, which may await outside of functions as in `python -m asyncio`."""
    code = compile(example, "docs/python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, names)  # noqa: S307 - our own page
    if running is not None:
        await running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the store that the page begins with. Time stands still."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embedded, "clock_ms", Clock(TODAY_MS))
    (line,) = re.findall(r"^penstock (limits set .*)$", PAGE, re.MULTILINE)
    assert main(shlex.split(line)) == 0
    return tmp_path


@pytest.mark.usefixtures("folder")
async def test_the_examples_print_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as a reader would try them."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    names: dict[str, Any] = {"penstock": penstock, "call_model": call_model, "sleep": sleep}
    *examples, fastapi = EXAMPLES
    assert "FastAPI(" in fastapi
    # All but two: a look at what is left, and one at what was consumed.
    assert sum("acquire(" in example for example in examples) == len(examples) - 2
    store = await open_store(STORE)
    for example in examples:
        capsys.readouterr()
        async with AsyncExitStack() as stack:
            if "penstock.connect(" in example:
                address = await stack.enter_async_context(serving(store, Clock(TODAY_MS)))
                assert "127.0.0.1:8081" in example
                example = example.replace("127.0.0.1:8081", address)
            elif "penstock.open(" not in example:
                names["gate"] = await stack.enter_async_context(penstock.open(STORE))
            before = await on_record(store, "user-123")
            await execute(example.replace("asyncio.sleep(", "sleep("), names)
            if "penstock.connect(" in example:  # the limits of the page are in force there, too
                taken = {"rpm": before["rpm"] + 1_000, "tpm": before["tpm"] + 500_000}
                assert await on_record(store, "user-123") == taken
        shown = "".join(f"{text}\n" for text in PRINTED.findall(example))
        assert capsys.readouterr().out == shown
    await store.close()
    assert slept == [2.52]
    assert names["heaviest"] == ["user-123"]
    assert {row[1] for row in names["used"]} == {"gpt-4"}


@pytest.mark.usefixtures("folder")
async def test_the_application_limits_its_callers() -> None:
    """The real FastAPI answers 429 with the seconds to wait, and settles what was used."""
    names: dict[str, Any] = {"call_model": call_model, "__name__": "application"}
    await execute(EXAMPLES[-1], names)
    app = names["app"]
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        ask = partial(client.post, "/ask", params={"question": "Why?"})
        answers = [await ask(headers={"x-api-key": "key-1"}) for _ in range(36)]
        assert [answer.status_code for answer in answers] == [200] * 35 + [429]
        assert answers[0].json() == {"answer": Answer.text}
        # 35 answers of 420 tokens leave 300 of 15,000. 200 more take 1.2 s.
        assert answers[-1].headers["retry-after"] == "2"
        assert "tpm of key-1 on gpt-4 has less than 500" in answers[-1].json()["detail"]
        assert (await ask(headers={"x-api-key": "key-2"})).status_code == 200


async def test_the_example_of_the_page_of_usage_works(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a store that has some usage."""
    store = f"sqlite:///{folder}/penstock.db"
    async with (
        penstock.open(store, limits={"tpm": "1000/minute"}) as gate,
        gate.acquire("user-123", "gpt-4", tpm=300),
    ):
        pass
    (example,) = [body for language, body in FENCE.findall(USAGE_PAGE) if language == "python"]
    assert "sqlite:///penstock.db" in example
    names: dict[str, Any] = {}
    await execute(example, names)
    assert capsys.readouterr().out.endswith(" 1 300\n")
    assert names["children"] == []
    assert [one.entity for one in names["top"]] == ["user-123"]


def test_the_page_has_every_argument_and_attribute() -> None:
    """Of the signatures, and of the error."""
    shown = {name.strip("`").partition("=")[0] for cell in arguments() for name in cell.split(", ")}
    assert shown == set(signature(penstock.connect).parameters)
    error = penstock.RateLimited("", "", "", "", 0.0)
    assert {name.strip("`") for name in table(PAGE_FILE, "attribute of `RateLimited`")} == set(
        vars(error)
    )


def arguments() -> list[str]:
    return list(table(PAGE_FILE, "argument of `connect`"))
