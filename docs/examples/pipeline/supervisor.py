# SPDX-License-Identifier: Apache-2.0
"""Runs the pipeline camera → invert (PyTorch) → shrink (TensorFlow or JAX) → sink, and restarts each stage that dies.

A stage that ends in order has handed on everything, so the pipeline has ended when its last stage says so. A stage prints
the number of each frame when it has handed it on; the Supervisor keeps the numbers, so it can say which frames a death has
cost.
"""

import argparse
import math
import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from arraybridge import Broker

HERE = Path(__file__).parent
NAMES = ("camera", "invert", "shrink", "sink")
FAILURES_MAX = 5  # in a row, without a frame
PAUSE_SECONDS = 1  # before a stage that failed is started again: its broker may be starting, too
GRACE_SECONDS = 10  # for the other stages to end in order when the last one has
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


class Death(NamedTuple):
    status: int  # exit status, or minus the signal
    last: int  # the frame before the one in its hands; -1: none


class Stage:
    """One stage of the pipeline: its process, and the next process when that has died."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.frames: list[int] = []  # handed on by all its processes
        self.deaths: list[Death] = []
        self.failures = 0  # exits with an error since its last frame
        self.complete = False  # it has printed "end"
        self.command = command  # of the next process
        self._rest = b""

    def start(self, address: str) -> None:
        environment = {**os.environ, **QUIET, "ARRAYBRIDGE_ADDRESS": address}
        self._rest = b""
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment)

    @property
    def output(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self) -> bool:
        """Reads numbers that the process has printed. False: it has ended, and everything is read."""
        printed = os.read(self.output, 65536)
        *lines, self._rest = (self._rest + printed).split(b"\n")
        self.frames += [int(line) for line in lines if line != b"end"]
        self.complete |= b"end" in lines
        self.failures = 0 if lines else self.failures
        return bool(printed)

    def ended(self) -> int:
        """Reaps the process; its exit status, or minus the signal that killed it."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        status = self.process.wait()
        if status != 0:
            self.deaths.append(Death(status, self.frames[-1] if self.frames else -1))
            self.failures += status > 0
        return status


class Supervisor:
    """The processes of all stages. Leaving its `with` block kills those that are left.

    Args:
        pythons: interpreters of stages, by name; the one of this process runs the others.
        seconds: how long the camera takes frames.
        framework: of the third stage, "tensorflow" or "jax".
    """

    def __init__(self, address: str, seconds: float, framework: str = "jax", pythons: Mapping[str, str] | None = None) -> None:
        arguments = {"camera": [str(time.monotonic()), str(seconds)], "shrink": [framework]}
        self.stages = {
            name: Stage(name, [(pythons or {}).get(name, sys.executable), str(HERE / f"{name}.py"), *arguments.get(name, [])])
            for name in NAMES
        }
        self._address = address
        self._begun = time.monotonic()
        self._end = math.inf  # of waiting for stages, once the pipeline has ended
        self._due: dict[Stage, float] = {}  # when stages that failed are started again
        self._outputs = selectors.DefaultSelector()
        for stage in self.stages.values():
            self._start(stage)

    def run(self, until: Callable[[], bool] = lambda: False) -> bool:
        """Reads and restarts. True: the pipeline has ended; False: `until` says so.

        A stage that was killed when it had handed on everything waits for the next stream when it is started again. So
        stages that are left when the last one has ended are not waited for.
        """
        while (self._outputs.get_map() or self._due) and time.monotonic() < self._end:
            if until():
                return False
            for key, _ in self._outputs.select(0.05):
                if not key.data.read():
                    self._outputs.unregister(key.fd)
                    self._after_end(key.data)
            self._start_due()
        return True

    def lost(self) -> Iterator[tuple[Stage, list[int]]]:
        """Each stage after the first, and the frames that it got and did not hand on. Call it when all have ended."""
        arrived = set(self.stages["sink"].frames)
        before = self.stages["camera"].frames
        for name in NAMES[1:]:
            stage = self.stages[name]
            gone = set(before) - set(stage.frames) - arrived
            yield stage, sorted(gone)
            before = [frame for frame in before if frame not in gone]

    def _start_due(self) -> None:
        now = time.monotonic()
        if self.stages["sink"].complete:
            self._end = min(self._end, now + GRACE_SECONDS)
            self._due.clear()
        for stage in [stage for stage, at in self._due.items() if at <= now]:
            del self._due[stage]
            self._start(stage)

    def _start(self, stage: Stage) -> None:
        stage.start(self._address)
        self._outputs.register(stage.output, selectors.EVENT_READ, stage)

    def _after_end(self, stage: Stage) -> None:
        process, status = stage.process.pid, stage.ended()
        if status == 0:
            return self._say(stage, f"process {process} has ended in order")
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        ended = f"process {process}: {how}, after frame {stage.deaths[-1].last}"
        if self.stages["sink"].complete:
            return self._say(stage, f"{ended}; the pipeline has ended")
        if stage.failures == FAILURES_MAX:
            raise SystemExit(f"{stage.name}: failed {FAILURES_MAX} times without a frame; its output above says why")
        if status > 0:
            self._due[stage] = time.monotonic() + PAUSE_SECONDS
            return self._say(stage, f"{ended}; is restarted in {PAUSE_SECONDS} s")
        self._start(stage)
        self._say(stage, f"{ended}; restarted as process {stage.process.pid}")

    def _say(self, stage: Stage, what: str) -> None:
        print(f"{time.monotonic() - self._begun:7.2f} s  {stage.name:<7} {what}", flush=True)

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *_: object) -> None:
        for stage in self.stages.values():
            stage.process.kill()
            stage.process.wait()


class Killer:
    """Kills a stage, drawn by chance, every so many seconds; never one that has ended in order."""

    def __init__(self, stages: Mapping[str, Stage], every: float) -> None:
        self._stages = stages
        self._every = every
        self._next = time.monotonic() + every

    def __call__(self) -> bool:
        if time.monotonic() >= self._next:
            self._next += self._every
            random.choice([*self._stages.values()]).process.kill()
        return False


def interpreter(option: str) -> tuple[str, str]:
    name, _, python = option.partition("=")
    if name not in NAMES or not os.access(python, os.X_OK):
        raise argparse.ArgumentTypeError(f"{option!r} must be STAGE=INTERPRETER, with a stage of {', '.join(NAMES)} and an executable file")
    return name, python


def main() -> int:
    options = argparse.ArgumentParser(description="A pipeline of four processes, with a supervisor that restarts them.")
    options.add_argument("--seconds", type=float, default=10, help="how long the camera takes frames (10)")
    options.add_argument("--kill-every", type=float, metavar="S", help="kill a stage, drawn by chance, every S seconds")
    options.add_argument("--framework", choices=["tensorflow", "jax"], default="jax", help="of the stage shrink (jax)")
    options.add_argument("--python", type=interpreter, action="append", default=[], metavar="STAGE=INTERPRETER",
                         help="the interpreter of the stage's environment; repeat it for further stages")  # fmt: skip
    options.add_argument("--address", help="a broker that runs; without it, the pipeline has a broker of its own")
    said = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    broker = Broker(said.address, start="never") if said.address else Broker(start="private")
    with broker, Supervisor(broker.address, said.seconds, said.framework, dict(said.python)) as supervisor:
        supervisor.run(Killer(supervisor.stages, said.kill_every) if said.kill_every else lambda: False)
        for stage, frames in supervisor.lost():
            print(f"{stage.name}: {len(stage.frames)} frames, {len(stage.deaths)} deaths, lost: {frames}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
