# SPDX-License-Identifier: Apache-2.0
"""A real browser, driven by the DevTools protocol over a pair of pipes: headless Chromium, with one page."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foreign_client import PATIENCE_S

CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
MISSING = "chromium-headless-shell (Debian's package) is not installed"
MARGIN = 12  # pixels
FIRST_FREE_FD = 10  # the browser's ends of the pipes become its descriptors 3 and 4


def command(home: Path, *flags: str) -> list[str]:
    own = ["--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={home}", "--disable-dev-shm-usage", "--hide-scrollbars"]
    return [str(CHROMIUM), *own, *(["--no-sandbox"] if os.geteuid() == 0 else []), *flags]


class ProtocolError(Exception):
    """The browser refused a call."""


class Browser:
    """One page of a browser. What happens on it is kept in `events`, as the protocol tells it."""

    def __init__(self, home: Path, width: int, height: int) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, FIRST_FREE_FD) for end in (to_read, to_write)]
        words = ["bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", *command(home, "--remote-debugging-pipe")]
        self._log = (home.parent / f"{home.name}.log").open("wb")
        environment = {**os.environ, "HOME": str(home)}
        self.process = subprocess.Popen(words, pass_fds=theirs, stdout=self._log, stderr=self._log, env=environment)
        for end in (to_read, to_write, *theirs):
            os.close(end)
        self.events: list[dict[str, Any]] = []
        self._rest = b""
        self._number = 0
        self._session: dict[str, str] = {}
        target = self.send("Target.createTarget", url="about:blank", width=width, height=height)["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def send(self, method: str, **parameters: Any) -> Any:
        """Calls a method of the protocol; its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise ProtocolError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], PATIENCE_S)
            assert ready, f"the browser did not answer for {PATIENCE_S} s"
            piece = os.read(self._read, 1 << 20)
            assert piece, f"the browser has ended; {self._log.name} says why"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def open(self, url: str) -> None:
        assert "errorText" not in self.send("Page.navigate", url=url)
        self.until("the document is complete", "document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, what: str, expression: str) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (value := self._evaluate_now(expression)):
            assert time.monotonic() < deadline, f"never happened: {what}; the page says:\n{self.text()}"
            time.sleep(0.05)
        return value

    def _evaluate_now(self, expression: str) -> Any:
        """None, if the document is just being replaced."""
        try:
            return self.evaluate(expression)
        except ProtocolError as error:
            if "context" not in str(error):
                raise
            return None

    def text(self, selector: str = "body") -> str:
        """The text of an element as a reader sees it, without what is hidden; of a picture, its labels."""
        return str(
            self.evaluate(f"(e => e === null ? '' : (e.innerText ?? e.textContent))(document.querySelector({json.dumps(selector)}))")
        )

    def until_text(self, text: str, selector: str = "body") -> None:
        self.until(text, f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').includes({json.dumps(text)})")

    def said(self, method: str) -> Iterator[dict[str, Any]]:
        """The parameters of the events of one kind so far."""
        self.send("Runtime.getIsolateId")  # events that came before its answer are kept
        return (event["params"] for event in self.events if event.get("method") == method)

    def requested(self) -> list[str]:
        return [event["request"]["url"] for event in self.said("Network.requestWillBeSent")]

    def problems(self) -> list[str]:
        """Violations of the page's policy, and errors of its script."""
        blocked = [entry["entry"]["text"] for entry in self.said("Log.entryAdded") if entry["entry"]["source"] == "security"]
        return blocked + [str(thrown["exceptionDetails"]) for thrown in self.said("Runtime.exceptionThrown")]

    def picture(self, path: Path, selector: str | None = None) -> None:
        """Writes a PNG of the window, or of all of one element, with a margin."""
        clip = {}
        if selector is not None:
            rectangle = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
            x, y, width, height = self.evaluate(f"(b => [b.x + scrollX, b.y + scrollY, b.width, b.height])({rectangle})")
            place = {"x": x - MARGIN, "y": y - MARGIN, "width": width + 2 * MARGIN, "height": height + 2 * MARGIN}
            clip = {"clip": {**place, "scale": 1}, "captureBeyondViewport": True}
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png", **clip)["data"]))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()
        for end in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(end)
