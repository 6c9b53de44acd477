# SPDX-License-Identifier: Apache-2.0
"""The status page in a browser: files of shares, where the bytes of each name are, and why no more files are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from browser import CHROMIUM, MISSING, Browser
from foreign_client import Daemon, Session, refused
from test_http import read, url

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)

OUT = 2
MIB = 1 << 20
DRAWN = "document.body.classList.contains('is-live')"
FACTS = "Object.fromEntries([...document.querySelectorAll('dl.facts div')].map(each => [each.children[0].innerText, each.title]))"
WHERE = "[...document.querySelectorAll('#names tbody tr')].map(row => [row.cells[0].innerText, row.cells[4].innerText])"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    opened = Browser(tmp_path / "browser", 1200, 900)
    yield opened
    opened.close()


@pytest.fixture
def session(tmp_path: Path, start: Callable[..., Daemon], open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("ARRAYBRIDGED_TIERS__DIRECTORY", str(tmp_path / "files"))
    monkeypatch.setenv("ARRAYBRIDGED_TIERS__DISK_MAX", "4MiB")
    session = open_session(start("--cache", "0", "--http", "127.0.0.1:0", "--http-namespaces", "--log-format", "json"))
    for name in ("in file", "in memory"):
        _, mapping = session.publish(name, bytes(MIB))
        mapping.close()
    session.call("Tier", action=OUT, name="in file")
    return session


def test_files_and_residencies_are_shown(session: Session, browser: Browser) -> None:
    browser.open(url(session.daemon) + "/")
    browser.until("the live view is drawn", DRAWN)
    browser.until("the names are read", "document.querySelectorAll('#names tbody tr').length === 2")
    assert dict(browser.evaluate(FACTS))["in files"] == "1,048,576 bytes of 4,194,304 bytes"
    assert sorted(map(tuple, browser.evaluate(WHERE))) == [("in file", "disk"), ("in memory", "host")]
    assert "in file" not in browser.text("#memory"), "its bytes are in no memory"
    assert "Files" not in browser.text("#alerts")
    assert browser.problems() == []


def test_it_says_why_no_more_files_are_written(
    tmp_path: Path, start: Callable[..., Daemon], browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").write_text("no directory")
    monkeypatch.setenv("ARRAYBRIDGED_TIERS__DIRECTORY", str(tmp_path / "files"))
    daemon = start("--http", "127.0.0.1:0", "--log-format", "json")
    assert "Not a directory" in json.loads(read(daemon, "/tier.json"))["off"]
    browser.open(url(daemon) + "/")
    browser.until_text("No bytes of shares are written to files any more: ", "#alerts")
    assert "in files" not in dict(browser.evaluate(FACTS))


def test_nearly_full_files_are_an_alert(session: Session, browser: Browser) -> None:
    _, mapping = session.publish("large", bytes(3 * MIB - 4096))
    mapping.close()
    session.call("Tier", action=OUT, name="large")
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "disk_max"):
        session.call("Tier", action=OUT, name="in memory")
    browser.open(url(session.daemon) + "/")
    browser.until_text("of 4.0 MiB (tiers.disk_max)", "#alerts")
