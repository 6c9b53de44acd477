# SPDX-License-Identifier: Apache-2.0
"""What sanitizers see: fault 38. Valgrind here, over both sides of a session; the others have builds and suites of their own.

AddressSanitizer, UndefinedBehaviorSanitizer and LeakSanitizer run all C++ tests and the fault tests (tests/run --only asan), and
the fuzz targets; ThreadSanitizer runs the tests with threads (tests/run --only tsan).
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import harness
import pytest
from harness import PATIENCE_S, ROOT, Daemon, Ledger, eventually

SESSION = (
    "put a 65536 1", "get a 1", "get a 1 private", "scribble", "check", "put a 65536 2 replace", "many 2 a", "drop", "put s 65536 3 sealed",
    "get s 3", "tree t 4096 3 5", "get t 3", "put late 4096 1 late", "list", "open c receive", "open c send", "send c 4096 5 60000",
    "receive c 60000", "close c receive", "close c send", "place 65536", "drop", "flush", "withdraw a", "withdraw s", "withdraw t",
    "withdraw late", "flush",
)  # fmt: skip


def valgrind(reports: Path) -> list[str]:
    kinds = "--errors-for-leak-kinds=definite"
    return ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite", kinds, f"--log-file={reports}/%p"]


def reported(reports: Path) -> str:
    """Without what valgrind says of system calls that it does not know."""
    lines = [line for path in sorted(reports.iterdir()) for line in path.read_text().splitlines()]
    return "\n".join(
        line for line in lines if not re.search(r"WARNING: unhandled|You may be able to write|Nevertheless it|Read the file", line)
    )


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.skipif(harness.SANITIZED, reason="a sanitizer and valgrind exclude each other")
def test_valgrind_has_nothing_to_report(tmp_path: Path) -> None:
    """Fault 38: no invalid access, no use of undefined bytes, no leak, in the daemon and in clients that leave or are killed."""
    reports = tmp_path / "reports"
    reports.mkdir()
    daemon = Daemon(tmp_path / "broker", prefix=valgrind(reports))
    try:
        ledger = Ledger(daemon)
        client = daemon.client(prefix=valgrind(reports), timeout_ms=int(PATIENCE_S * 1000))
        for line in SESSION:
            client.ask(line)
        victim = daemon.client()
        victim.ask("put left 65536 9")
        victim.ask("get left 9")
        victim.kill()
        client.ask("withdraw left")
        client.leave()
        eventually("the dead one's memory is back", lambda: daemon.stats()["allocated_bytes"] == 0)
        ledger.settle()
        daemon.stop()
    except BaseException:
        daemon.process.send_signal(signal.SIGKILL)
        daemon.warden.kill()
        print(reported(reports))
        raise
    assert len(list(reports.iterdir())) == 2, "the daemon and a client"
    assert reported(reports) == ""


def test_every_sanitizer_has_a_preset_and_a_suite() -> None:
    """Fault 38: the builds that the table of docs/explanation/reliability.md names."""
    presets = {
        each["name"]: each.get("cacheVariables", {}) for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    }
    sanitizers = {name: values["ARRAYBRIDGE_SANITIZE"] for name, values in presets.items() if "ARRAYBRIDGE_SANITIZE" in values}
    assert sanitizers == {"asan": "address,undefined", "tsan": "thread", "fuzz": "address,undefined"}
    script = (ROOT / "tests/run").read_text()
    for name in sanitizers:
        suite = script.split(f"\nsuite_{name}() {{\n")[1].split("\n}\n")[0]
        assert f"build {name} " in suite
    assert "run_pytest tests/faults" in script.split("\nsuite_asan() {\n")[1].split("\n}\n")[0]
    assert "ASAN_OPTIONS=detect_leaks=1" in script
