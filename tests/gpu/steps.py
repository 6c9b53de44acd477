# SPDX-License-Identifier: Apache-2.0
"""Steps of a run: each is a command with a time limit, and its outcome is kept in any case."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import reaper


@dataclass
class Step:
    name: str
    outcome: str  # passed, failed, not run
    seconds: float = 0
    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)  # name or reason
    said: str = ""  # the end of the output of a failed step


@dataclass
class Runner:
    environment: dict[str, str]
    ends: float | None  # the time.monotonic() at which the whole run must end; None: it and its steps take what they take

    def left(self) -> float:
        return float("inf") if self.ends is None else self.ends - time.monotonic()

    def output(self, command: list[str], limit: float, environment: dict[str, str] | None = None) -> tuple[int, str]:
        """Exit status and output; 124 if it took longer than `limit` seconds. Every process that it started, and that
        lives, is killed at its end.
        """
        within = None if self.ends is None else limit
        # Not a pipe: a process that a driver does not let go would keep it open, and its reader waiting.
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                reaper.command(within, command),
                stdout=said,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment | (environment or {}),
                start_new_session=True,
            )
            try:
                status = process.wait(None if within is None else within + 2 * reaper.DYING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                status = reaper.TOOK_TOO_LONG
            said.seek(0)
            return status, said.read().decode(errors="replace")

    def gtest(self, name: str, binary: Path, limit: float, environment: dict[str, str] | None = None, only: str = "*") -> Step:
        return self._test(name, [str(binary), "--gtest_brief=0", f"--gtest_filter={only}"], limit, environment, _count_gtest)

    def pytest(self, name: str, words: list[str], limit: float, environment: dict[str, str] | None = None) -> Step:
        command = [*words[:1], "-m", "pytest", "-q", "-rs", *words[1:]]
        return self._test(name, command, limit, environment, _count_pytest)

    def compiles(self, name: str, sources: list[Path], includes: list[Path], limit: float) -> Step:
        """Compiles sources, with their static assertions, and makes no output."""
        command = ["c++", "-std=c++20", "-fsyntax-only", *(f"-I{folder}" for folder in includes), *map(str, sources)]
        return self._test(
            name, command, limit, None, lambda step, _: setattr(step, "passed", len(sources) if step.outcome == "passed" else 0)
        )

    def _test(self, name: str, command: list[str], limit: float, environment: dict[str, str] | None, count: Any) -> Step:
        limit = min(limit, self.left())
        if limit <= 0:
            return Step(name, "not run: no time left")
        begun = time.monotonic()
        status, text = self.output(command, limit, environment)
        step = Step(name, "passed" if status == 0 else "failed", round(time.monotonic() - begun, 2))
        count(step, text)
        if status != 0:
            step.said = (f"no answer within {limit:.0f} s\n" if status == reaper.TOOK_TOO_LONG else "") + "\n".join(text.splitlines()[-60:])
            step.failed = max(step.failed, 1)
        return step


def _count_gtest(step: Step, text: str) -> None:
    step.passed = len(re.findall(r"^\[       OK \]", text, re.M))
    step.failed = len(re.findall(r"^\[  FAILED  \] .*ms\)$", text, re.M))
    step.skipped = re.findall(r"^\[  SKIPPED \] (\S+) \(\d+ ms\)$", text, re.M)


def _count_pytest(step: Step, text: str) -> None:
    last = text.splitlines()[-1] if text else ""
    number = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error|errors|skipped)", last)}
    step.passed = number.get("passed", 0)
    step.failed = number.get("failed", 0) + number.get("error", 0) + number.get("errors", 0)
    step.skipped = [line.removeprefix("SKIPPED ") for line in text.splitlines() if line.startswith("SKIPPED ")]


def json_lines(text: str) -> list[dict[str, Any]]:
    """Objects among the lines of a program's output."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
