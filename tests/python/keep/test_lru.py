# SPDX-License-Identifier: Apache-2.0
"""Which results of a cached function leave memory: the least recently used ones, whoever used them; to files if there are any."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from processes import environment, start_daemon, stop_daemon

from arraybridge import Broker

SIZE = 1 << 20
MODULE = f"""
import os, sys
import numpy as np
import arraybridge
broker = arraybridge.Broker(os.environ["LRU_ADDRESS"], start="never")
calls = []
@arraybridge.cache(broker=broker, budget=3 * {SIZE})
def function(number):
    calls.append(number)
    return np.full({SIZE}, number, "u1")
"""


class Place:
    """A daemon, and the module of a function with room for three results, which processes import."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "lru_function.py").write_text(MODULE)
        self.daemon = start_daemon(str(folder / "broker"), "--log-level", "warn", "--arena-idle", "100ms", "--cache", "0")
        monkeypatch.setenv("LRU_ADDRESS", str(folder / "broker"))
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop("lru_function", None)
        self.module: ModuleType = __import__("lru_function")

    def elsewhere(self, code: str) -> str:
        """What the code prints in another process."""
        words = [sys.executable, "-c", f"from lru_function import *\n{code}"]
        known = {**environment(), "LRU_ADDRESS": str(self.folder / "broker")}
        known["PYTHONPATH"] = os.pathsep.join([str(self.folder), known.get("PYTHONPATH", "")])
        return subprocess.run(words, env=known, capture_output=True, text=True, check=True).stdout

    def residencies(self) -> dict[int, str]:
        """Of the results that there are, by number."""
        names = {self.module.function.name(number): number for number in range(10)}
        self.module.broker.flush()
        rows = self.module.broker.list("cache/")
        return {names[row.share.name]: row.share.residency for row in rows}

    def stop(self) -> None:
        self.module.broker.close()
        assert stop_daemon(self.daemon) == 0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(tmp_path, monkeypatch)
    yield made
    made.stop()


@pytest.fixture
def place_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("ARRAYBRIDGED_TIERS__DIRECTORY", str(tmp_path / "files"))
    monkeypatch.setenv("ARRAYBRIDGED_TIERS__DISK_MAX", str(5 * SIZE // 2))
    made = Place(tmp_path, monkeypatch)
    yield made
    made.stop()


def test_a_use_of_another_process_counts(place: Place) -> None:
    function = place.module.function
    for number in range(3):
        function(number)
    assert place.elsewhere("print(function(0)[0], calls)") == "0 []\n", "a hit"
    function(3)
    assert set(place.residencies()) == {0, 2, 3}, "1 is the least recently used one"
    assert function(1)[0] == 1, "it is made again"
    assert place.module.calls == [0, 1, 2, 3, 1]


def test_a_use_of_this_process_counts_at_once(place: Place) -> None:
    function = place.module.function
    for number in (0, 1, 2, 0, 1, 3, 1, 4):
        function(number)
    assert set(place.residencies()) == {1, 3, 4}


def test_what_is_read_stays(place: Place) -> None:
    function = place.module.function
    held = [function(0), function(1)]
    for number in range(2, 6):
        function(number)
    assert set(place.residencies()) == {0, 1, 5}
    assert [array[0] for array in held] == [0, 1]


def test_what_leaves_goes_to_a_file_first(place_with_files: Place) -> None:
    place, function = place_with_files, place_with_files.module.function
    for number in range(5):
        function(number)
    assert place.residencies() == {0: "disk", 1: "disk", 2: "host", 3: "host", 4: "host"}
    assert function(0)[0] == 0 and place.module.calls == list(range(5)), "it is read, not made"


def test_a_full_directory_loses_the_least_recently_used_file(place_with_files: Place) -> None:
    place, function = place_with_files, place_with_files.module.function
    for number in range(7):
        function(number)
    assert place.residencies() == {2: "disk", 3: "disk", 4: "host", 5: "host", 6: "host"}
    assert np.array_equal(function(0), np.zeros(SIZE, "u1"))
    assert place.module.calls == [*range(7), 0]


def test_uses_are_few_calls(place: Place) -> None:
    function, broker = place.module.function, place.module.broker
    function(0)
    before = broker.stats()["publishes_total"]
    for _ in range(2000):
        function(0)
    broker.flush()
    assert broker.stats()["publishes_total"] - before < 20
    with Broker(broker.address, start="never") as other:
        (uses,) = other.list("uses/")
        assert uses.share.nbytes <= 256


def test_clear_withdraws_the_uses_of_all_processes(place: Place) -> None:
    function, broker = place.module.function, place.module.broker
    function(0)
    assert place.elsewhere("print(function(0)[0], calls)") == "0 []\n"
    assert len(broker.list("uses/")) == 2
    assert function.clear() == 1
    assert broker.list() == []
    assert function(0)[0] == 0 and len(broker.list("uses/")) == 1, "uses count again"
