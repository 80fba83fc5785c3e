"""Debian's Chromium, driven through its DevTools protocol over a pipe: no driver, no package."""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
)
_PATIENCE = 60  # seconds


class Browser:
    """A browser of our own, with a profile that is thrown away."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="rivermouth-chromium-")
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        options = [*_OPTIONS, f"--user-data-dir={self._profile}"]
        # Chromium listens on descriptor 3 and speaks on 4
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write} 2>/dev/null', "-", program, *options],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._number = 0
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Ask for something, and wait for its answer."""
        self._number += 1
        number, answer = self._number, queue.Queue[dict[str, Any]]()
        self._answers[number] = answer
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        found = answer.get(timeout=_PATIENCE)
        assert "error" not in found, f"{method}: {found['error']}"
        result: dict[str, Any] = found["result"]
        return result

    def page(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> Page:
        """A new, empty page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        return page

    def close(self) -> None:
        self.call("Browser.close")
        self._process.wait(timeout=_PATIENCE)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _listen(self) -> None:
        rest = b""
        while chunk := os.read(self._in, 1 << 20):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers.pop(message["id"]).put(message)
                elif message.get("sessionId") in self._pages:
                    self._pages[message["sessionId"]].heard(message["method"], message["params"])


class Page:
    """A tab: what it shows, what it complained of, and what it asked for."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def heard(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"])[:800])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(said["args"])[:800])
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise's once it is kept."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The value of an expression as soon as it is true."""
        deadline = time.monotonic() + _PATIENCE
        while not (value := self.run(f"(() => {{ try {{ return {expression} }} catch {{}} }})()")):
            assert time.monotonic() < deadline, f"in vain: {expression}; {self.complaints}"
            time.sleep(0.05)
        return value

    def text(self, selector: str) -> str:
        value: str = self.run(f"document.querySelector({json.dumps(selector)}).textContent")
        return value

    def key(self, key: str, **more: Any) -> None:
        """Press a key and let it go."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        named = {"key": key, "code": _CODES.get(key, ""), **more}
        if key in _NUMBERS:
            named["windowsVirtualKeyCode"] = _NUMBERS[key]
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def click(self, selector: str) -> None:
        """Click on the middle of an element, by the mouse."""
        where = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        self.click_at(*where)

    def click_at(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save what it shows as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


_CODES = {"Tab": "Tab", "Enter": "Enter", " ": "Space"}
_NUMBERS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}


def chromium() -> str | None:
    """Where Chromium is, None where it is not."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, where it is there; CI must have it."""
    program = chromium()
    if program is None:
        if os.environ.get("RIVERMOUTH_REQUIRE_SERVERS"):
            pytest.fail("Chromium is not installed: run `make servers`")
        pytest.skip("Chromium is not installed: run `make servers`")
    started = Browser(program)
    yield started
    started.close()
