# SPDX-License-Identifier: Apache-2.0
"""Starts all processes, and those that die again; sets the camera's exposure once a second."""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from arraybridge import Broker, BrokerTimeout, ServerGone

HERE = Path(__file__).parent
WORKERS = ("worker-1", "worker-2", "worker-3")
NAMES = (*WORKERS, "collect", "view", "record", "camera")
GRACE_SECONDS = 10  # for all processes to end in order when the last result is there


class Stage:
    """A process, and the next one when it has died. `lines` are those that all of them have printed."""

    def __init__(self, program: str, arguments: list[str], address: str) -> None:
        self.lines: list[str] = []
        self.deaths = 0
        self.ended = False  # in order
        self.arguments = arguments
        self._program = str(HERE / program)
        self._environment = {**os.environ, "ARRAYBRIDGE_ADDRESS": address}
        self.start()

    def start(self) -> None:
        command = [sys.executable, self._program, *self.arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=self._environment)
        self._reader = threading.Thread(target=self._read, args=[self.process.stdout])
        self._reader.start()

    def is_dead(self) -> bool:
        """Reaps it. False: it works, or has ended in order."""
        if self.ended or self.process.poll() is None:
            return False
        self._reader.join()
        self.ended = self.process.returncode == 0
        self.deaths += not self.ended
        return not self.ended

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def _read(self, output: Any) -> None:
        with output:
            for line in output:
                self.lines.append(line.strip())


class Line:
    """All processes. Leaving its `with` block kills those that are left."""

    def __init__(self, broker: Broker, seconds: float, folder: str) -> None:
        self._broker = broker
        self._asked = time.monotonic()
        self.answers: list[dict[str, int]] = []  # of the camera
        self.stages = {name: Stage("worker.py", [], broker.address) for name in WORKERS}
        self.stages["collect"] = Stage("collect.py", ["1"], broker.address)
        self.stages["view"] = Stage("view.py", [], broker.address)
        self.stages["record"] = Stage("record.py", [folder], broker.address)
        self._wait_for_workers()  # until they have loaded PyTorch
        self.stages["camera"] = Stage("camera.py", [str(time.monotonic()), str(seconds)], broker.address)

    def results(self) -> list[list[int]]:
        """[sequence, number of the frame, brightness] of each result, as the collectors have printed them."""
        lines = self.stages["collect"].lines
        return [[int(float(word)) for word in line.split()] for line in lines if line[0].isdigit()]

    def missing(self) -> list[int]:
        """The sequences of frames that got lost with a process that was killed."""
        return [int(word) for line in self.stages["collect"].lines if line.startswith("missing") for word in line.split()[1:]]

    def step(self) -> bool:
        """Restarts what has died. False: the last result is there."""
        for name, stage in self.stages.items():
            if stage.is_dead() and not self.complete():
                if name == "collect":
                    stage.arguments = [str(max([0, *self.missing(), *(result[0] for result in self.results())]) + 1)]
                stage.start()
                print(f"{name} was killed, and is process {stage.process.pid} now", flush=True)
        time.sleep(0.05)
        return not self.complete()

    def complete(self) -> bool:
        return self.stages["collect"].lines[-1:] == ["end"]

    def expose(self) -> None:
        """Sets the camera's exposure to the number of this call, if it is time."""
        if time.monotonic() < self._asked + 1 or self.stages["camera"].ended:
            return
        self._asked = time.monotonic()
        try:
            self.answers.append(self._broker.call("camera", {"exposure": 11 + len(self.answers)}, timeout=2))
        except (ServerGone, BrokerTimeout) as error:  # it was killed; the next one begins with its own exposure
            print(f"the camera does not answer: {type(error).__name__}", flush=True)

    def _wait_for_workers(self) -> None:
        while any("ready" not in self.stages[name].lines for name in WORKERS):
            self.step()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        over = time.monotonic() + GRACE_SECONDS
        while self.complete() and time.monotonic() < over and any(stage.process.poll() is None for stage in self.stages.values()):
            time.sleep(0.05)
        for stage in self.stages.values():
            stage.kill()


def main() -> None:
    options = argparse.ArgumentParser(description="An inspection line of seven processes.")
    options.add_argument("--seconds", type=float, default=10, help="how long the camera takes frames (10)")
    options.add_argument("--kill-every", type=float, metavar="S", default=0, help="kill a process, drawn by chance, every S seconds")
    said = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with Broker(start="private") as broker, tempfile.TemporaryDirectory() as folder:
        with Line(broker, said.seconds, folder) as line:
            killed = time.monotonic()
            while line.step():
                line.expose()
                if said.kill_every and time.monotonic() >= killed + said.kill_every:
                    killed = time.monotonic()
                    line.stages[random.choice(NAMES)].process.kill()
        taken, results = len(line.stages["camera"].lines), line.results()
        files = [path.stat().st_size for path in Path(folder).glob("*.mcap")]
        print(f"the camera took {taken} frames, and got {len(line.answers)} settings of its exposure")
        print(f"{len(results)} results, all in order; missing: {line.missing() or 'none'}")
        print(f"the viewer showed {len(line.stages['view'].lines)}; the recording has {sum(files):,} bytes in {len(files)} file(s)")
        if [result[0] for result in results] != sorted({result[0] for result in results}):
            sys.exit("the results are not in order")


if __name__ == "__main__":
    main()
