# SPDX-License-Identifier: Apache-2.0
"""The Python whose frameworks see the driver under test: this one on a GPU and in a bundle, one of its own in a
checkout on the simulated driver.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import machine
import reaper
from steps import Runner, Step

ROOT = Path(__file__).resolve().parents[2]
# tests/simulated_cuda/frameworks/run makes it.
VENV = ROOT / "build/simulated_cuda/venv"
FRAMEWORKS = ROOT / "tests/simulated_cuda/frameworks"


class Extension:
    """A bundle's extension, which a child builds for this Python while experiments run: they use no Python."""

    def __init__(self, build: Path, wanted: bool, limit: float) -> None:
        self.begun = time.monotonic()
        self.log = build / "extension.log"
        self.building: subprocess.Popen[bytes] | None = None
        if wanted:
            with self.log.open("wb") as log:
                command = reaper.command(None, [str(Path(__file__).with_name("extension")), str(build), sys.executable, f"{limit:.0f}"])
                self.building = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def built(self, runner: Runner, limit: float) -> list[Step]:
        """Waits for the build, if there is one; the first call tells its outcome."""
        if self.building is None:
            return []
        try:
            status = self.building.wait(None if runner.ends is None else max(min(limit, runner.left()), 0))
        except subprocess.TimeoutExpired:
            self.building.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.building.wait(2 * reaper.DYING_S)
            status = reaper.TOOK_TOO_LONG
        self.building = None
        importlib.invalidate_caches()
        seconds = round(time.monotonic() - self.begun, 2)
        said = self.log.read_text(errors="replace").splitlines()
        if status == 0:
            fallback = said[-1] if said and "prebuilt" in said[-1] else ""
            return [Step("extension", "passed", seconds, passed=1, said=fallback)]
        tail = "\n".join(said[-40:])
        return [Step("extension", "failed", seconds, failed=1, said=tail)]


@dataclass
class Python:
    program: str = ""
    environment: dict[str, str] = field(default_factory=dict)  # in addition to that of every step
    missing: str = ""  # why no framework can be tested

    def sees_a_gpu_by_torch(self, runner: Runner) -> bool:
        code = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 1)"
        return not self.missing and runner.output([self.program, "-c", code], 60, self.environment)[0] == 0


def of_this_machine() -> Python:
    for module in ("pytest", "arraybridge"):
        if not machine.has(module):
            return Python(missing=f"{module} is not here" if module == "pytest" else "the extension is not built")
    return Python(sys.executable)


def simulated(runner: Runner, scratch: Path) -> Python:
    """A Python with a small libcudart over the simulated driver, loaded before the frameworks, and this tree's package."""
    program = VENV / "bin/python"
    if (ROOT / "build/gpu/BUNDLE").exists():
        program = Path(sys.executable)
    if not program.exists():
        return Python(missing=f"{VENV.relative_to(ROOT)} is not made (tests/simulated_cuda/frameworks/run makes it)")
    if not machine.has("pytest"):
        return Python(missing="pytest is not here")
    extension = importlib.util.find_spec("arraybridge._core") if machine.has("arraybridge") else None
    if extension is None or extension.origin is None:
        return Python(missing="the extension is not built")
    package = scratch / "package/arraybridge"
    package.mkdir(parents=True)
    for each in [*(ROOT / "python/arraybridge").iterdir(), Path(extension.origin)]:
        if not (package / each.name).exists():
            (package / each.name).symlink_to(each)
    status, said = runner.output([str(program), str(FRAMEWORKS / "runtime.py"), str(scratch)], 120)
    if status != 0:
        return Python(missing=f"libcudart for the simulated driver: {said.splitlines()[-1] if said else status}")
    preloaded = {"LD_PRELOAD": said.strip().splitlines()[-1], "PYTHONPATH": str(package.parent), "PYTHONWARNINGS": "ignore"}
    return Python(str(program), preloaded)
