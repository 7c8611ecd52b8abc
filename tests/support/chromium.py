"""A real Chromium without a window, driven over the DevTools protocol.

The package `chromium` of Debian has it. Names are resolved nowhere, so no request leaves this
machine, and every request that a page makes is on record.
"""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.processes import PATIENCE_S, wait_for

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
MISSING = "Chromium is not there: apt-get install chromium"

LOOK_S = 0.05
"""Between two looks at a page, for a state that has to come."""

FLAGS = (
    "--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--force-color-profile=srgb", "--hide-scrollbars", "--mute-audio",
)  # fmt: skip


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def chromium(folder: Path) -> Iterator[str]:
    """Run Chromium, with its profile in a folder; gives the address of its DevTools."""
    program = find_chromium()
    assert program is not None, MISSING
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [program, *FLAGS, *root, f"--user-data-dir={folder}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    port_file = folder / "DevToolsActivePort"

    def port() -> str | None:
        assert process.poll() is None, (folder / "chromium.log").read_text()
        lines = port_file.read_text().splitlines() if port_file.exists() else []
        return lines[0] if len(lines) > 1 else None

    try:
        yield f"127.0.0.1:{wait_for(port, 'Chromium to start')}"
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()


class Page:
    """One tab. What went wrong in it is in `problems`, and what it asked for in `requests`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.requests: list[str] = []
        self.problems: list[str] = []

    async def hear(self) -> None:
        async for message in self._socket:
            heard = json.loads(message.data)
            if "id" in heard:
                self._asked.pop(heard["id"]).set_result(heard)
            else:
                self._note(heard["method"], heard["params"])

    def _note(self, method: str, params: Any) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._asked[number] = answered = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            answer = await answered
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    async def run(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        result = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def wait_for(self, script: str) -> Any:
        """Wait until an expression is true; gives its value."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            # An element has no value that could be given.
            if found := await self.run(f"(v => v instanceof Node ? true : v)({script})"):
                return found
            await asyncio.sleep(LOOK_S)
        shown = await self.run("document.body.innerText")
        raise AssertionError(f"waited in vain for {script}; {self.problems}; the page:\n{shown}")

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def text(self, selector: str) -> str:
        return str(await self.wait_for(f"{_find(selector)}?.innerText"))

    async def click(self, selector: str) -> None:
        """Click in the middle of an element, as a person would."""
        await self.wait_for(f"{_find(selector)} !== null")
        x, y = await self.run(
            f"(() => {{ const e = {_find(selector)}; e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect();"
            " return [r.left + r.width / 2, r.top + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    async def move_to(self, selector: str, share: float) -> None:
        """Move the pointer over an element, at a share of its width."""
        x, y = await self.run(
            f"(() => {{ const r = {_find(selector)}.getBoundingClientRect();"
            f" return [r.left + r.width * {share}, r.top + r.height / 2]; }})()"
        )
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        codes = {"Enter": 13, "Tab": 9, "Home": 36, "ArrowRight": 39, "ArrowDown": 40, "/": 191}
        text = {"Enter": "\r", "/": "/"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **({"text": text} if kind == "keyDown" and text else {}),
            )

    async def look_like(self, width: int, height: int, *, dark: bool = False) -> None:
        """Have a screen of this size, and a system with these colours."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def keep_picture(self, file: Path) -> None:
        picture = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        _write(file, base64.b64decode(picture["data"]))


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _find(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})"


@asynccontextmanager
async def open_page(devtools: str) -> AsyncIterator[Page]:
    """A new tab with a profile of its own, so that nothing is left of another test."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{devtools}/json/version") as response:
            browser = (await response.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(browser, max_msg_size=0) as control:
            root = Page(control)
            hearing = asyncio.create_task(root.hear())
            context = await root.call("Target.createBrowserContext", disposeOnDetach=True)
            target = await root.call("Target.createTarget", url="about:blank", **context)
            address = f"ws://{devtools}/devtools/page/{target['targetId']}"
            async with session.ws_connect(address, max_msg_size=0) as socket:
                page = Page(socket)
                page_hearing = asyncio.create_task(page.hear())
                for domain in ("Page", "Network", "Runtime", "Log"):
                    await page.call(f"{domain}.enable")
                yield page
                page_hearing.cancel()
            await root.call("Target.disposeBrowserContext", **context)
            hearing.cancel()
