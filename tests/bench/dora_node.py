# SPDX-License-Identifier: Apache-2.0
"""One node of a dora dataflow, for pipelines.dora; its environment selects the work. stage.py describes the works."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import stage
from dora import Node


class Stage:
    def __init__(self, work: str, role: str, rounds: int, result: Path) -> None:
        self.node, self.work, self.rounds, self.result = Node(), work, rounds, result
        getattr(self, role)()

    def receive(self) -> Any:
        while (event := self.node.next()) is not None and event["type"] != "STOP":
            if event["type"] == "INPUT":
                return event["value"]
        raise SystemExit(0)

    def send(self, array: Any) -> None:
        self.node.send_output("out", array if isinstance(array, pyarrow.Array) else pyarrow.array(array), {})

    def check(self, value: Any, number: int) -> None:
        stage.check(value.to_numpy(zero_copy_only=True), number)

    def done(self, value: float) -> None:
        self.result.write_text(json.dumps({"value": value}))

    def hop_producer(self) -> None:
        frame, times = np.zeros(stage.HOP_BYTES, "u1"), []
        for number in range(stage.WARM_UP + self.rounds * 100):
            begun = time.perf_counter_ns()
            stage.stamp(frame, number)
            self.send(frame)
            self.check(self.receive(), number)
            times.append((time.perf_counter_ns() - begun) / 2000)
        self.done(statistics.median(times[stage.WARM_UP :]))

    def hop_echo(self) -> None:
        frame, number = np.zeros(stage.HOP_BYTES, "u1"), 0
        while True:
            self.check(self.receive(), number)
            stage.stamp(frame, number)
            self.send(frame)
            number += 1

    def producer(self) -> None:
        frame, unheard = np.zeros(stage.FRAME_BYTES, "u1"), 0
        for number in range(stage.WARM_UP + self.rounds * 10):
            stage.stamp(frame, number)
            self.send(frame)
            unheard += 1
            # A full queue drops its oldest frame; and while dora changes from its daemon to a direct route, a frame may
            # overtake the previous one.
            while unheard >= (1 if number < stage.WARM_UP else stage.DEPTH):
                self.receive()
                unheard -= 1
        while True:
            self.receive()

    def relay(self) -> None:
        while True:
            self.send(self.receive())

    def consumer(self) -> None:
        begun = 0
        for number in range(stage.WARM_UP + self.rounds * 10):
            if number == stage.WARM_UP:
                begun = time.perf_counter_ns()
            self.check(self.receive(), number)
            self.send(np.zeros(1, "u1"))
        self.done((time.perf_counter_ns() - begun) / 1000 / (self.rounds * 10))


if __name__ == "__main__":
    wish = os.environ
    Stage(wish["WORK"], wish["ROLE"], int(wish["ROUNDS"]), Path(wish["RESULT"]))
