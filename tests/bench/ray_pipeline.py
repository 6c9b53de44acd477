# SPDX-License-Identifier: Apache-2.0
"""Ray beside ours: actors as stages, arrays by ray.put, references passed in calls. Prints lines of JSON.

ray_pipeline.py FOLDER ROUNDS       with the interpreter of build/peers/ray; FOLDER: for its sockets and logs, short
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
import numpy as np
import ray
import stage

READERS = 8


@ray.remote(num_cpus=0)
class Stage:
    """A process; `after`: the stage that it sends its frames to. A call returns when the last stage has the frame."""

    def __init__(self, after: Any = None) -> None:
        self.after = after
        self.array: Any = None

    def take(self, box: list[Any], number: int) -> None:
        stage.check(ray.get(box[0]), number)
        if self.after is not None:
            ray.get(self.after.take.remote(box, number))

    def echo(self, box: list[Any], number: int) -> list[Any]:
        self.take(box, number)
        return [ray.put(stamped(stage.HOP_BYTES, number))]

    def attach(self, box: list[Any]) -> tuple[float, float]:
        before = stage.pss_mib()
        begun = time.perf_counter_ns()
        self.array = ray.get(box[0])
        last = int(self.array[-1])
        took = (time.perf_counter_ns() - begun) / 1000
        assert last == 77 and int(self.array.view("<i8")[::512].sum()) == 7 * (stage.LARGE_BYTES // 4096)
        return took, before

    def pss_mib(self) -> float:
        return stage.pss_mib()

    def hold(self, box: list[Any]) -> str:
        self.array = ray.get(box[0])
        stage.check(self.array, 5)
        return stage.rights_of(self.array)

    def intact(self) -> bool:
        return bool((self.array[8:] == 5).all())


@ray.remote(num_cpus=0)
class Producer:
    def hops(self, to: Any, rounds: int) -> float:
        times = []
        for number in range(stage.WARM_UP + rounds * 20):
            begun = time.perf_counter_ns()
            (back,) = ray.get(to.echo.remote([ray.put(stamped(stage.HOP_BYTES, number))], number))
            stage.check(ray.get(back), number)
            times.append((time.perf_counter_ns() - begun) / 2000)
        return statistics.median(times[stage.WARM_UP :])

    def frames(self, to: Any, rounds: int) -> float:
        """Microseconds per frame, with as many frames in flight as a ring has slots."""
        frame, sent, begun = np.zeros(stage.FRAME_BYTES, "u1"), [], 0
        for number in range(stage.WARM_UP + rounds * 10):
            if number == stage.WARM_UP:
                ray.get(sent)
                begun = time.perf_counter_ns()
            stage.stamp(frame, number)
            sent.append(to.take.remote([ray.put(frame)], number))
            if len(sent) > stage.DEPTH:
                ray.get(sent.pop(0))
        ray.get(sent)
        return (time.perf_counter_ns() - begun) / 1000 / (rounds * 10)

    def put(self, number: int) -> tuple[list[Any], int]:
        return [ray.put(stamped(stage.FRAME_BYTES, number))], os.getpid()


def stamped(size: int, number: int) -> Any:
    frame = np.empty(size, "u1")
    stage.stamp(frame, number)
    return frame


def attached() -> dict[str, float]:
    array = np.zeros(stage.LARGE_BYTES, "u1")
    array.view("<i8")[::512] = 7
    array[-1] = 77
    reference = ray.put(array)
    del array
    readers = [Stage.remote() for _ in range(READERS)]
    ray.get([reader.pss_mib.remote() for reader in readers])
    found = [ray.get(reader.attach.remote([reference])) for reader in readers]
    after = ray.get([reader.pss_mib.remote() for reader in readers])
    pss = statistics.median(mib - before for mib, (_, before) in zip(after, found, strict=True))
    return {"value": statistics.median(took for took, _ in found), "pss_mib": pss}


def killed() -> dict[str, Any]:
    producer, reader, successor = Producer.remote(), Stage.remote(), Producer.remote()
    box, process = ray.get(producer.put.remote(5))
    rights = ray.get(reader.hold.remote(box))
    os.kill(process, 9)
    time.sleep(1)  # for the raylet to notice it
    del box
    for number in range(50, 80):
        ray.get(successor.put.remote(number))
    return {"intact": ray.get(reader.intact.remote()), "reader_writes": rights, "next_producer": "sends"}


def main() -> None:
    folder, rounds = sys.argv[1], int(sys.argv[2])
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=3 << 30, _temp_dir=folder, log_to_driver=False,
        logging_level="ERROR", runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).resolve().parent)}},
    )  # fmt: skip

    def emit(row: str, **figures: Any) -> None:
        print(json.dumps({"row": row, **figures}), flush=True)

    producer, last = Producer.remote(), Stage.remote()
    emit("hop_4kib", value=ray.get(producer.hops.remote(last, rounds)))
    emit("frame_copied", value=ray.get(producer.frames.remote(last, rounds)))
    emit("relay_3_hops_6mib", value=ray.get(producer.frames.remote(Stage.remote(Stage.remote(last)), rounds)))
    emit("attach_1gib", **attached())
    emit("kill", **killed())
    ray.shutdown()


if __name__ == "__main__":
    main()
