# SPDX-License-Identifier: Apache-2.0
"""Pipelines of processes, one transport each: a hop of 4 KiB, frames, relays, an attach, a killed producer.

`measured` returns the figures of one transport by row; a work that does not run is Absent with the reason. Files that a
library leaves in shared memory are counted and removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import stage
from peers import ENVIRONMENTS, Absent, served
from transports import Pipe

HERE = Path(__file__).resolve().parent
READERS = 8
START_S = 120
WORK_S = 60
SUCCESSOR_S = 3  # for a second producer's frames, most of which have no room
ROLES = {
    "hop": ["hop_producer", "hop_echo"],
    "frames": ["frames_producer", "frames_consumer"],
    "frames_copied": ["frames_producer", "frames_consumer"],
    "relay": ["relay_producer", "relay_one", "relay_two", "relay_consumer"],
}


def interpreter(name: str) -> str:
    environment = stage.kind_of(name).environment
    python = ENVIRONMENTS / environment / "bin/python" if environment else Path(sys.executable)
    if not python.exists():
        raise Absent(f"{name}: deploy/setup peers has not installed it")
    return str(python)


class Pipeline:
    """The processes of one work, on given CPUs, with a folder of their own. Its end ends and removes all of it."""

    def __init__(self, name: str, work: str, cpus: str, rounds: int, daemon: Path) -> None:
        self.name, self.work, self.cpus, self.rounds, self.daemon = name, work, cpus, rounds, daemon
        self.python = interpreter(name)
        self.scratch = Path(tempfile.mkdtemp(prefix="arraybridge-peers-"))
        self.processes: list[subprocess.Popen[str]] = []
        self.pipes = {pipe: Pipe(self.scratch / f"pipe.{pipe}") for pipe in ("ready", "go", "end")}
        self.exits = contextlib.ExitStack()
        self.seen: set[Path] = set()  # files in shared memory that its processes have mapped

    def __enter__(self) -> Pipeline:
        try:
            self.exits.callback(self.clean)
            self.serve()
        except BaseException:
            self.exits.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.exits.close()

    def serve(self) -> None:
        if self.name.startswith("arraybridge"):
            home = self.scratch / "broker"
            home.mkdir(mode=0o700)
            command = [str(self.daemon), "--directory", str(home), "--log-level", "error"]
            self.exits.enter_context(served(command, self.cpus, lambda _: (home / "lifeline.sock").exists()))
        if self.name == "vineyard":
            daemon = next((ENVIRONMENTS / "vineyard").glob("lib/*/site-packages/vineyard/bdist/vineyardd"))
            socket = self.scratch / "vineyard.sock"
            command = [str(daemon), "--socket", str(socket), "--size", "3Gi", "--meta", "local", "--rpc", "false"]
            self.exits.enter_context(served(command, self.cpus, lambda _: socket.exists()))

    def start(self, role: str, rounds: int | None = None) -> subprocess.Popen[str]:
        command = [self.python, str(HERE / "stage.py"), self.name, self.work, role, str(self.scratch)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        with (self.scratch / "errors").open("a") as errors:
            process = subprocess.Popen(
                ["taskset", "-c", self.cpus, *command, "--rounds", str(rounds or self.rounds)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        self.processes.append(process)
        return process

    def await_ready(self, count: int, patience_s: float = START_S) -> None:
        """Waits until this number of stages is ready."""
        until = time.monotonic() + patience_s
        while count > 0:
            if select.select([self.pipes["ready"].fd], [], [], 0.2)[0]:
                self.pipes["ready"].get()
                count -= 1
            elif time.monotonic() > until or any(process.poll() for process in self.processes):
                raise self.failed("does not start")

    def go(self, count: int) -> None:
        for _ in range(count):
            self.pipes["go"].put()

    def kill(self, process: subprocess.Popen[str]) -> None:
        self.processes.remove(process)
        self.see(process)
        process.kill()
        process.communicate()

    def result(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        patience_s = WORK_S + self.rounds  # frames are measured for 0.2 s a round
        if not select.select([process.stdout], [], [], patience_s)[0]:
            raise self.failed(f"gave nothing within {patience_s} s")
        line = process.stdout.readline()
        if not line:
            process.wait()
            raise self.failed("ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def failed(self, how: str) -> Absent:
        said = (self.scratch / "errors").read_text().strip().rsplit("\n", 1)[-1]
        return Absent(f"{self.name}, {self.work}: {how}{': ' if said else ''}{said[-200:]}")

    def see(self, process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            self.seen |= {Path("/dev/shm" + line.split(" /dev/shm", 1)[1]) for line in lines if " /dev/shm/" in line}

    def left(self) -> list[Path]:
        """Existing files in shared memory that are its own, or that its processes had mapped."""
        named = {file for file in Path("/dev/shm").iterdir() if self.scratch.name in file.name}
        return sorted(named | {file for file in self.seen if file.exists()})

    def clean(self) -> None:
        for process in list(self.processes):
            self.kill(process)
        for file in self.left():
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        shutil.rmtree(self.scratch, ignore_errors=True)


def streamed(pipeline: Pipeline) -> float:
    """Microseconds of a hop one way, or of a frame."""
    roles = ROLES[pipeline.work]
    started = [pipeline.start(role) for role in roles]
    pipeline.await_ready(len(roles))
    pipeline.go(len(roles))
    measuring = started[0] if pipeline.work == "hop" else started[-1]
    value: float = pipeline.result(measuring)["value"]
    return value


def attached(pipeline: Pipeline) -> tuple[float, float]:
    """Microseconds until a reader has 1 GiB for the first time, and the MiB that one of 8 readers is charged for."""
    pipeline.start("attach_holder")
    pipeline.await_ready(1)
    readers = [pipeline.start("attach_reader") for _ in range(READERS)]
    pipeline.await_ready(READERS)
    for _ in readers:  # one after the other
        pipeline.go(1)
        pipeline.await_ready(1)
    measure = Pipe(pipeline.scratch / "pipe.measure")
    for _ in readers:
        measure.put()
    found = [pipeline.result(reader) for reader in readers]
    return statistics.median(one["value"] for one in found), statistics.median(one["pss_mib"] for one in found)


def killed(pipeline: Pipeline) -> dict[str, Any]:
    """A reader holds a frame, its producer is killed, and another producer sends as many frames as it can. Reports
    whether the frame has changed.
    """
    producer, consumer = pipeline.start("kill_producer", rounds=1), pipeline.start("kill_consumer")
    pipeline.await_ready(2)
    pipeline.go(2)
    pipeline.await_ready(2)  # the producer has sent, and the reader holds the frame
    pipeline.kill(producer)
    successor = pipeline.start("kill_producer", rounds=30)
    try:
        pipeline.await_ready(1)
        pipeline.go(1)
        pipeline.await_ready(1, SUCCESSOR_S)
        next_producer = "sends"
    except Absent:
        next_producer = "waits" if successor.poll() is None else "fails"
    pipeline.kill(successor)
    pipeline.go(2)  # a successor that failed has not read its message
    found = pipeline.result(consumer)
    pipeline.kill(consumer)
    return {**found, "next_producer": next_producer, "left": len(pipeline.left())}


def measured(name: str, cpus: str, rounds: int, daemon: Path, whole: bool = True) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The figures of one transport on these CPUs, by row without its name, and the reasons for absent rows. Not
    `whole`: without the works that take a gigabyte or several seconds, and with torch, which each process imports, one work.
    """
    found: dict[str, dict[str, Any]] = {}
    absent = []
    transport = stage.kind_of(name)
    works = [("hop_4kib", "hop"), ("frame_copied", "frames_copied"), ("relay_3_hops_6mib", "relay")]
    works += [("frame", "frames")] if transport.in_place else []
    works += [("attach_1gib", "attach")] if transport.attaches and whole else []
    works += [("kill", "kill")] if whole else []
    if not whole and name.endswith("torch"):
        works = works[:1]
    for row, work in works:
        try:
            with Pipeline(name, work, cpus, rounds, daemon) as pipeline:
                if work == "attach":
                    value, pss_mib = attached(pipeline)
                    found[row] = {"value": value, "pss_mib": pss_mib}
                elif work == "kill":
                    found[row] = killed(pipeline)
                else:
                    found[row] = {"value": streamed(pipeline)}
        except Absent as why:
            absent.append(str(why))
    return found, absent


def main() -> None:
    """pipelines.py DAEMON CPUS ROUNDS [TRANSPORT...]: prints the results, one line of JSON per transport."""
    daemon, cpus, rounds, *names = sys.argv[1:]
    for name in names or stage.TRANSPORTS:
        found, absent = measured(name, cpus, int(rounds), Path(daemon))
        print(json.dumps({"transport": name, **found, "absent": absent}), flush=True)


if __name__ == "__main__":
    main()
