# SPDX-License-Identifier: Apache-2.0
"""The guides that show the status page: a browser is driven to what they say, their commands are run, and their words hold.

ARRAYBRIDGE_PICTURES=1: the guides' pictures, docs/pictures/status-*.png, are taken again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, MISSING, Browser
from foreign_client import CTL, Daemon
from processes import ROOT, environment
from test_pipeline import supervisor

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)

GUIDES = ROOT / "docs/guides"
PICTURES = ROOT / "docs/pictures"
WIDTH, HEIGHT = 1140, 900
DRAWN = "document.body.classList.contains('is-live')"


class Scene:
    """A daemon with its status page in a browser, and programs that use it."""

    def __init__(self, home: Path, *flags: str) -> None:
        self.home = home
        self.daemon = Daemon(home / "broker", "--http", "127.0.0.1:0", "--http-namespaces", *flags)
        port = re.search(r"http port (\d+)", self.daemon.log.read_text())
        assert port is not None
        self.port = port[1]
        path = os.pathsep.join([str(CTL.parent), os.environ["PATH"]])
        self.variables = environment(ARRAYBRIDGE_ADDRESS=str(self.daemon.directory), PATH=path)
        self.programs: list[subprocess.Popen[str]] = []
        self.browser = Browser(home / "browser", WIDTH, HEIGHT)

    def run(self, name: str, code: str) -> subprocess.Popen[str]:
        """Starts a program of this name, and waits until it prints a line."""
        program = self.home / name
        program.write_text(f"from arraybridge import Broker\nbroker = Broker()\n{code}")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, str(program)], env=self.variables, text=True, **pipes)
        self.programs.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n", name
        return process

    def show(self) -> Browser:
        self.browser.open(f"http://127.0.0.1:{self.port}/")
        self.browser.until("the live view is drawn", DRAWN)
        return self.browser

    def picture(self, name: str, selector: str) -> None:
        """Takes a picture for a guide, which has it."""
        assert any(f"(../pictures/{name})" in guide.read_text(encoding="utf-8") for guide in GUIDES.glob("*.md"))
        folder = PICTURES if os.environ.get("ARRAYBRIDGE_PICTURES") else self.home
        self.browser.picture(folder / name, selector)
        assert (folder / name).read_bytes()[:8] == (PICTURES / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"

    def close(self) -> None:
        self.browser.close()
        for program in self.programs:
            program.kill()
            program.communicate()
        assert self.daemon.terminate() == 0


@pytest.fixture
def scene() -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []
    with tempfile.TemporaryDirectory(prefix="ab-") as home:

        def made(*flags: str) -> Scene:
            scenes.append(Scene(Path(home), *flags))
            return scenes[-1]

        yield made
        for each in scenes:
            each.close()


def words(text: str) -> str:
    """The text with any number as 0, and any space as one: sizes, ages and process ids differ."""
    return re.sub(r"\s+", " ", re.sub(r"\d+(?:[.,]\d+)*", "0", text)).strip()


class Guide:
    """A guide: sentences that it quotes from the page, and commands with what they print."""

    def __init__(self, name: str) -> None:
        self.text = (GUIDES / name).read_text(encoding="utf-8")

    def quotes_of(self, page: str) -> None:
        """Each quotation is on the page."""
        quoted = [" ".join(re.findall(r"^> ?(.*)$", block, re.MULTILINE)) for block in re.findall(r"(?:^> .*\n)+", self.text, re.MULTILINE)]
        assert quoted
        for quotation in quoted:
            assert words(quotation) in words(page), (quotation, page)

    def first_cells(self, title: str) -> list[str]:
        """The first column of the table whose first title this is."""
        (rows,) = re.findall(rf"^\| {title} \|.*\n\|[-|]+\n((?:\|.*\n)+)", self.text, re.MULTILINE)
        return re.findall(r"^\| ([^|]*?) \|", rows, re.MULTILINE)

    def commands(self, **variables: str) -> None:
        """Each command of the guide does what it should; what it prints is shown after it, as far as the guide has it."""
        blocks = re.findall(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", self.text, re.DOTALL)
        assert blocks
        for block, shown in blocks:
            printed = ""
            for command in block.splitlines():
                done = subprocess.run(["bash", "-c", command], env=variables, capture_output=True, text=True, check=False)
                assert done.returncode == 0, (command, done.stdout, done.stderr)
                printed += done.stdout
            for line in shown.splitlines():
                assert line.strip() == "…" or words(line) in words(printed), (block, line, printed)


TRAINER = """
import numpy
for number in range(1, 4):
    broker.put(numpy.full(12 << 20, number, "float32"), f"checkpoint/{number}")
print("ready", flush=True)
input()
"""
LOADER = """
import numpy
for number in range(6):
    broker.put(numpy.full((1024, 1024), number, "float32"), f"batch/{number}")
print("ready", flush=True)
input()
"""
CAPTURE = """
import numpy
frames = broker.channel("frames", capacity=8).open("sender")
for number in range(5):
    frames.send(numpy.full((1080, 1920, 3), number, "uint8"))
print("ready", flush=True)
input()
"""
PREVIEW = """
import numpy
broker.put(numpy.zeros((2048, 2048), "float32"), "preview")
print("ready", flush=True)
"""


def test_the_process_that_holds_the_memory_is_found(scene: Callable[..., Scene]) -> None:
    made = scene()
    trainer, *_ = (made.run(name, code) for name, code in {"trainer.py": TRAINER, "loader.py": LOADER, "capture.py": CAPTURE}.items())
    made.run("preview.py", PREVIEW).wait()
    browser = made.show()
    browser.until_text("preview", "#memory")
    browser.until_text("ended processes", "#memory")
    first = browser.evaluate("document.querySelector('#memory p b').innerText")
    assert first == f"trainer.py (process {trainer.pid}), user {os.getuid()}"
    largest = browser.evaluate("[...document.querySelector('#memory tbody tr').cells].slice(1, 3).map(cell => cell.innerText)")
    assert largest[0].startswith("trainer.py ") and largest[1].startswith("checkpoint/")
    made.picture("status-memory.png", "#memory")
    guide = Guide("who-holds-the-memory.md")
    guide.quotes_of(browser.text())
    session = browser.evaluate(
        "fetch('list.json?kind=SESSIONS').then(a => a.json()).then(a => a.sessions.find(s => s.client === 'trainer.py').session)"
    )
    guide.commands(**made.variables, SESSION=session)
    browser.until("the memory is free", "!document.getElementById('memory').innerText.includes('trainer.py')")


def test_the_stage_that_stands_still_is_found(scene: Callable[..., Scene]) -> None:
    for framework in ("torch", "jax"):
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    made = scene()
    with supervisor.Supervisor(str(made.daemon.directory), 3600) as pipeline:
        shrink = pipeline.stages["shrink"]
        pipeline.run(lambda: len(pipeline.stages["sink"].frames) >= 30)
        browser = made.show()
        browser.until("arrays move", "/out \\d/.test(document.getElementById('pipeline').querySelector('svg').textContent)")
        assert "Stands still" not in browser.text("#alerts")
        made.picture("status-pipeline.png", "#pipeline")
        shrink.process.send_signal(signal.SIGSTOP)
        browser.until_text("Stands still", "#pipeline")
        browser.until_text("Held back", "#alerts")
        alerts = browser.text("#alerts")
        assert re.search(
            rf"Stands still: shrink\.py jax \(process {shrink.process.pid}\) has taken nothing from channel 'inverted' for \d+ s", alerts
        )
        assert re.search(r"Held back: invert\.py .* waits for room in channel 'inverted'\.", alerts) and alerts.count("Stands still") == 1
        assert browser.evaluate("[...document.querySelectorAll('.node.bad .name')].map(each => each.textContent)") == [
            "inverted",
            "shrink.py jax",
        ]
        made.picture("status-stands-still.png", "#pipeline")
        guide = Guide("a-pipeline-that-stands-still.md")
        rules = (ROOT / "daemon/service/http/page/alerts.js").read_text(encoding="utf-8")
        assert all(f"title: '{title}'" in rules for title in guide.first_cells("The alert"))
        guide.quotes_of(browser.text())
        guide.commands(**made.variables, PROCESS=str(shrink.process.pid))
        # The guide's last command lets it go on.
        browser.until("it goes on", "!document.getElementById('alerts').innerText.includes('Stands still')")


def test_a_crash_is_told(scene: Callable[..., Scene]) -> None:
    made = scene("--keeper")
    made.run("trainer.py", TRAINER)
    browser = made.show()
    browser.until_text("checkpoint/3", "#names")
    made.daemon.kill_below_keeper()
    browser.until_text("life 2 goes on with the arrays of the one before", "#lives")
    browser.until("the silence is over", "document.getElementById('silence').hidden")
    assert "checkpoint/3" in browser.text("#names")
    made.picture("status-lives.png", "#lives")
    guide = Guide("after-a-crash.md")
    assert len(guide.first_cells("Row")) == 5 and all(name in browser.text("#lives") for name in guide.first_cells("Row"))
    guide.commands(**made.variables)


def test_the_silence_of_a_daemon_is_told(scene: Callable[..., Scene]) -> None:
    made = scene()
    browser = made.show()
    made.daemon.process.send_signal(signal.SIGSTOP)
    try:
        browser.until("it says so", "!document.getElementById('silence').hidden")
        Guide("after-a-crash.md").quotes_of(browser.text("#silence"))
    finally:
        made.daemon.process.send_signal(signal.SIGCONT)
    browser.until("the silence is over", "document.getElementById('silence').hidden")
