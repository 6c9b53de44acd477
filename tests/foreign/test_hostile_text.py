# SPDX-License-Identifier: Apache-2.0
"""Names, dtypes and notes that act on a terminal: no outlet of the daemon or of arraybridgectl passes them on."""

from __future__ import annotations

import json
import os
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from foreign_client import CTL, PATIENCE_S, Daemon, Lifeline, Refused, Session

BROWSE = 13
# The daemon takes these in names; they turn the direction of writing, or have no width.
TURNS = "\u202e\u2066\u2069\u061c\u200f"
NAME = f"n{TURNS}<b>\"'\\"
# Anything else that a client may say: control characters of both tables, and line ends.
SAYS = f"\x1b[2J\r\n\x9b31m\x7f\u2028{TURNS}"


def acting(text: str) -> set[str]:
    """The characters of a text on which a terminal or browser acts, but for line ends."""
    return {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") and letter != "\n"}


@pytest.fixture(params=["json", "text"])
def hostile(request: pytest.FixtureRequest, tmp_path: Path, start: Callable[..., Daemon], open_session: Callable[..., Session]) -> Session:
    """A session that uses these texts wherever it may."""
    config = tmp_path / "arraybridged.toml"
    config.write_text(f"[http]\nlisten = '127.0.0.1:0'\nnamespaces = true\n[log]\nformat = '{request.param}'\nlevel = 'debug'\n")
    session = open_session(start("--config", str(config)), client=f"c{SAYS}")
    publish(session)
    session.call("OpenChannel", namespace=NAME, name=NAME, role="SENDER", capacity=3)
    return session


def publish(session: Session) -> None:
    allocated = session.call("Allocate", namespace=NAME, size=256)
    redeemed, descriptor = session.lifeline.redeem(allocated.ticket)
    os.close(descriptor)
    session.call("Mapped", arena=redeemed.handle.arena)
    spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": f"d{SAYS}", "shape": [256], "size": 256}
    session.call("Publish", namespace=NAME, name=NAME, arena=redeemed.handle.arena, arena_generation=redeemed.handle.generation,
                 size=256, specs={"arrays": [spec]}, note=f"note{TURNS}")  # fmt: skip


REFUSALS: dict[str, tuple[str, dict[str, Any]]] = {
    "namespace": ("Acquire", {"namespace": f"x{SAYS}", "shares": [{"name": "a"}]}),
    "unknown namespace": ("Acquire", {"namespace": f"x{TURNS}", "shares": [{"name": "a"}]}),
    "share": ("Acquire", {"namespace": NAME, "shares": [{"name": f"x{SAYS}"}]}),
    "unknown share": ("Acquire", {"namespace": NAME, "shares": [{"name": f"x{TURNS}"}]}),
    "generation": ("Acquire", {"namespace": NAME, "shares": [{"name": NAME, "generation": 99}]}),
    "withdrawn share": ("Withdraw", {"namespace": NAME, "shares": [{"name": f"x{TURNS}"}]}),
    "unknown channel": ("Withdraw", {"namespace": NAME, "channel": f"x{TURNS}"}),
    "channel": ("OpenChannel", {"namespace": NAME, "name": f"x{SAYS}", "role": "SENDER"}),
    "capacity": ("OpenChannel", {"namespace": NAME, "name": NAME, "role": "SENDER", "capacity": 7}),
    "device": ("Allocate", {"namespace": NAME, "size": 256, "device": {"type": 2, "uuid": f"GPU{SAYS}"}}),
    "allocation": ("Allocate", {"namespace": f"x{SAYS}", "size": 256}),
    "quota": ("Allocate", {"namespace": NAME, "size": 1 << 60}),
    "page": ("List", {"kind": "SHARES", "page_token": SAYS}),
    "watched namespace": ("Inspect", {"namespace": f"x{TURNS}", "share": {"name": NAME}}),
    "note": ("Acquire", {"namespace": NAME, "shares": [{"name": NAME}], "note": SAYS}),
}


@pytest.fixture
def plain(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> Session:
    session = open_session(start())
    publish(session)
    session.call("OpenChannel", namespace=NAME, name=NAME, role="SENDER", capacity=3)
    return session


def test_errors_quote_nothing_that_acts(plain: Session) -> None:
    quoted = 0
    for what, (verb, fields) in REFUSALS.items():
        try:
            answer = plain.call(verb, **fields)
        except grpc.RpcError as error:
            details = str(error.details())  # type: ignore[attr-defined]
        else:
            raise AssertionError(f"{what} was not refused: {answer}")
        assert details and not acting(details), (what, details)
        quoted += "\\u202e" in details
    assert quoted >= 8, "errors name what was asked for"
    lifeline = Lifeline(plain.daemon, plain.messages)
    for part in ("CATALOGUE", "HAZARD_PAGE", "QUEUE"):
        with pytest.raises(Refused) as refused:
            lifeline.ask(BROWSE, plain.messages.BrowseRequest(namespace=f"x{SAYS}", part=part), plain.messages.BrowseResponse())
        assert not acting(str(refused.value)), part
    lifeline.socket.close()


FORMS = ([], ["-o", "wide"], ["-o", "csv"], ["-o", "json"], ["-o", "jsonl"])
LISTS = (
    ["ls"],
    *(["ls", kind] for kind in ("sessions", "leases", "namespaces", "channels")),
    ["ls", "--group-by", "namespace"],
    ["top", "--once"],
)


def test_arraybridgectl_shows_them_as_escapes(hostile: Session) -> None:
    hostile.call("Acquire", namespace=NAME, shares=[{"name": NAME}])
    watch = ["watch", "--count", "2", "--since", "1h"]
    of_share = [["-n", NAME, command, NAME] for command in ("show", "trace", "explain")]
    commands = [*LISTS, *of_share, ["-n", NAME, "channel", "show", NAME], watch, ["-n", NAME, "show", f"x{SAYS}"], [f"x{SAYS}"]]
    shown = 0
    for words in commands:
        for form in FORMS:
            done = subprocess.run([str(CTL), "-H", str(hostile.daemon.directory), *form, *words], capture_output=True, timeout=PATIENCE_S)
            text = (done.stdout + done.stderr).decode()
            assert text and not acting(text), (form, words, text)
            shown += "\\u2066" in text
            if form[1:] == ["json"] and done.returncode == 0 and words[0] != "watch":
                json.loads(text)
    assert shown >= 40


def test_the_log_the_status_page_and_the_metrics_show_them_as_escapes(hostile: Session) -> None:
    for verb, fields in REFUSALS.values():
        with pytest.raises(grpc.RpcError):
            hostile.call(verb, **fields)
    for page in ("/", "/metrics"):
        text = hostile.daemon.page(page)
        assert "\\u202e" in text and not acting(text), page
        assert "<b>" not in text or page == "/metrics"
    assert not acting(hostile.daemon.log.read_text())


def test_two_names_that_look_alike_are_one_sample(
    start: Callable[..., Daemon], open_session: Callable[..., Session], tmp_path: Path
) -> None:
    """A scraper drops a page with two samples of the same labels."""
    config = tmp_path / "arraybridged.toml"
    config.write_text("[http]\nlisten = '127.0.0.1:0'\nnamespaces = true\n[log]\nformat = 'json'\n")
    session = open_session(start("--config", str(config)))
    for name in ("\u202e", "\\u202e"):
        session.call("Allocate", namespace=name, size=4096)
    lines = [line for line in session.daemon.page("/metrics").splitlines() if line.startswith("arraybridge_namespace_charged_bytes{")]
    names = [line.rpartition(" ")[0] for line in lines]
    assert len(names) == len(set(names)) and sum(float(line.rpartition(" ")[2]) for line in lines) == 8192
