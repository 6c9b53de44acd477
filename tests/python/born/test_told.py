# SPDX-License-Identifier: Apache-2.0
"""What the broker is told of born arrays, and what arraybridgectl shows of it: `ls sessions` and `doctor`."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import start_daemon, stop_daemon

from arraybridge import Broker, _core
from arraybridge.broker.born_tally.told import Told

CTL = Path(os.environ["ARRAYBRIDGE_DAEMON"]).parents[1] / "client/ctl/arraybridgectl"
MIB = 1 << 20


def ctl(address: str, *arguments: str) -> str:
    return subprocess.run([CTL, "-H", address, *arguments], check=True, capture_output=True, text=True, timeout=60).stdout


def doctor(address: str) -> str:
    """Its status is not 0 where the host has a problem of another kind."""
    return subprocess.run([CTL, "-H", address, "doctor", "-o", "json"], capture_output=True, text=True, timeout=60).stdout


def told(address: str, enough: int) -> dict[str, Any]:
    """What the latest session of this process has told, once it has told of so many arrays, born and missed."""
    born: dict[str, Any] = {}
    for _ in range(600):
        rows = json.loads(ctl(address, "ls", "sessions", "-o", "json"))["sessions"]
        own = [row for row in rows if int(row["process_id"]) == os.getpid()]
        born = max(own, key=lambda row: int(row["session"])).get("born", {})
        missed = {each["name"]: int(each["number"]) for each in born.get("missed", ())}
        if int(born.get("arrays", 0)) + sum(missed.values()) >= enough:
            break
        time.sleep(0.1)
    return {
        "arrays": int(born.get("arrays", 0)),
        "bytes": {each["name"]: int(each["number"]) for each in born.get("bytes", ())},
        "missed": missed,
        "missed_bytes": int(born.get("missed_bytes", 0)),
    }


def test_the_broker_is_told_while_the_block_is_open(broker: Broker, address: str) -> None:
    with broker.born("numpy") as born:
        kept = [np.ones(MIB, "uint8") for _ in range(3)]
        zeros = np.zeros(32 * MIB, "uint8")
        now = told(address, 4)
        assert born.missed["zeros"].arrays == 1
    assert now["arrays"] == len(kept)
    assert now["bytes"]["numpy"] == 3 * MIB
    assert now["missed"]["zeros"] == 1
    assert now["missed_bytes"] == zeros.nbytes


def test_a_short_block_is_told_after_its_end(broker: Broker, address: str) -> None:
    for _ in range(5):
        with broker.born("numpy"):
            np.ones(MIB, "uint8")
    now = told(address, 5)
    assert now["arrays"] == 5


def test_each_framework_is_told_of_by_its_name(broker: Broker, address: str) -> None:
    torch = pytest.importorskip("torch")
    with broker.born("numpy", "torch") as born:
        kept = torch.ones(2 * MIB, dtype=torch.uint8), np.ones(MIB, "uint8")
        assert born.missed == {}
    now = told(address, len(kept))
    assert now["bytes"]["torch"] == 2 * MIB
    assert now["bytes"]["numpy"] == MIB


def test_the_doctor_names_the_session_whose_arrays_found_no_memory_and_the_remedy(tmp_path: Path) -> None:
    address = str(tmp_path)
    daemon = start_daemon(address, "--host-capacity", "128MiB", "--log-level", "error")
    try:
        with Broker(address) as broker, broker.born("numpy") as born:
            kept = []
            while "refused" not in born.missed and len(kept) < 4000:
                kept.append(np.ones(8 * MIB, "uint8"))
                time.sleep(0.01)
            assert "refused" in born.missed
            told(address, len(kept))
            findings = [row for row in json.loads(doctor(address)) if row["what"] == "born arrays"]
            assert [row["health"] for row in findings] == ["ok", "note"]
            assert f"process {os.getpid()}" in findings[1]["finding"] and "refused" in findings[1]["finding"]
            assert "quota" in findings[1]["mend"]
    finally:
        stop_daemon(daemon)


def test_a_session_without_born_arrays_says_nothing(tmp_path: Path) -> None:
    daemon = start_daemon(str(tmp_path), "--log-level", "error")
    try:
        with Broker(str(tmp_path)) as broker:
            broker.put(np.ones(4), "x")
            rows = json.loads(ctl(str(tmp_path), "ls", "sessions", "-o", "json"))["sessions"]
            assert all("born" not in row for row in rows)
            assert "born arrays" not in doctor(str(tmp_path))
    finally:
        stop_daemon(daemon)


def test_a_framework_of_another_name_is_refused(broker: Broker) -> None:
    heap = _core.born_heap(broker._connection.core(), 1 << 20)
    with pytest.raises(ValueError, match="no arrays are born of 'polars'"):
        _core.born_imports(heap, "polars", [], 1 << 20)


def test_counts_on_a_gpu_are_told_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scope:
        numbers: tuple[int, int, dict[str, tuple[int, int]], str] = (0, 0, {}, "")

        def enter(self) -> None: ...
        def leave(self) -> None: ...
        def counts(self) -> tuple[int, int, dict[str, tuple[int, int]], str]:
            return self.numbers

    heard: list[tuple[str, int, int, dict[str, tuple[int, int]]]] = []
    answers = [False]  # the first time it cannot be told

    def tell(core: object, *told: Any) -> bool:
        heard.append(told)
        return answers.pop() if answers else True

    monkeypatch.setattr(_core, "tell_born", tell)
    scope = Scope()
    block = Told(scope, object(), "cupy")  # type: ignore[arg-type]
    block.enter()
    scope.numbers = (2, 64, {"refused": (1, 32)}, "no room")
    for _ in range(100):
        if len(heard) == 2:
            break
        time.sleep(0.1)
    scope.numbers = (3, 96, {"refused": (1, 32)}, "no room")
    block.leave()
    first = ("cupy", 2, 64, {"refused": (1, 32)})
    assert heard == [first, first, ("cupy", 1, 32, {"refused": (0, 0)})]
