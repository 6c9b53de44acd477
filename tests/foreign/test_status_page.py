# SPDX-License-Identifier: Apache-2.0
"""The status page in a real browser: it is rendered, nothing is blocked, and no other server is contacted."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign_client import Session
from test_http import daemon, url

__all__ = ["daemon"]

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium (Debian's package) is not installed")


def browse(page: str, home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    own = ["--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={home}", "--disable-dev-shm-usage"]
    if os.geteuid() == 0:
        own.append("--no-sandbox")
    done = subprocess.run(
        [str(BROWSER), *own, *flags, page], capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(home)}
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_browser_renders_it(daemon: Any, open_session: Callable[..., Session], tmp_path: Path) -> None:
    open_session(daemon).publish("one", bytes(1 << 20))
    done = browse(url(daemon) + "/", tmp_path, "--dump-dom", "--enable-logging=stderr", "--v=0")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", done.stdout))
    for words in ("arraybridged", "Memory", "Users", "Requests", "Publish", "MiB"):
        assert words in text
    # Every table was parsed: all rows have as many cells as the first.
    for table in re.findall(r"<table>.*?</table>", done.stdout, re.DOTALL):
        rows = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
        assert len(rows) >= 2
        assert {len(re.findall(r"<t[hd][ >]", row)) for row in rows} == {len(re.findall(r"<t[hd][ >]", rows[0]))}
    assert "Content Security Policy" not in done.stderr  # the page's policy permits its own style


def test_it_is_rendered_on_a_small_screen(daemon: Any, open_session: Callable[..., Session], tmp_path: Path) -> None:
    open_session(daemon).publish("one", bytes(3 << 19))
    picture = tmp_path / "page.png"
    flags = ["--dump-dom", f"--screenshot={picture}", "--window-size=390,844", "--hide-scrollbars"]
    drawn = browse(url(daemon) + "/", tmp_path, *flags).stdout
    # The browser's document is our page with the published shares, and not an error page.
    assert "<title>arraybridged</title>" in drawn
    (users,) = re.findall(r"<h2>Users.*?(<table>.*?</table>)", drawn, re.DOTALL)
    assert re.search(r"<td class=\"n\">1\s*</td><td class=\"n\">1\.5 MiB\s*</td>", users), users
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture.read_bytes()[16:24]) == (390, 844)
    blank = tmp_path / "blank.png"
    browse("about:blank", tmp_path, f"--screenshot={blank}", "--window-size=390,844", "--hide-scrollbars")
    assert picture.stat().st_size > 2 * blank.stat().st_size
