# SPDX-License-Identifier: Apache-2.0
"""Dask: from the submit of a task to its answer, when the task reads an array that another worker has. Plain NumPy against ours.

    clusters_dask.py [--rounds 7] [--mebibytes 64 512]

The task reads one byte of each page. "hop": the array is in the other worker's memory before; "whole": the time includes
making it there (np.full; then `put`, or an `empty` that is filled). "same": both workers have one broker. "other": they are in
two network namespaces with a broker each, as root only. One JSON line for each row: milliseconds (median, least, most) of ours
and of plain, and their ratio; `reach` is what we want of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/clusters"), str(ROOT / "tests/python")]

import dask_tasks as tasks
from hosts import hosts, why_not

import arraybridge.integrations.dask as abd

WARM_UPS = 2
REACH = {("same", "hop", 64): 0.25, ("same", "hop", 512): 0.10, ("other", "hop", 64): 1.3, ("other", "hop", 512): 1.3}


def plain(nbytes: int) -> Any:
    import numpy as np

    return np.full(nbytes, 1, "u1")


def put(nbytes: int) -> Any:
    return abd.put(plain(nbytes))


def born(nbytes: int) -> Any:
    array = abd.empty(nbytes, "u1")
    array[:] = 1
    return abd.put(array)


def read(array: Any) -> int:
    """One byte of each page."""
    bytes_of = array if hasattr(array, "dtype") else array.get()
    return int(bytes_of[::4096].sum(dtype="i8"))


def milliseconds(client: Any, make: Callable[[int], Any], nbytes: int, workers: list[str], whole: bool) -> float:
    import distributed

    begin = time.perf_counter()
    source = client.submit(make, nbytes, workers=[workers[0]], pure=False)
    if not whole:
        distributed.wait(source)
        begin = time.perf_counter()
    answer = client.submit(read, source, workers=[workers[1]], pure=False).result()
    took = time.perf_counter() - begin
    assert answer == nbytes // 4096
    return took * 1000


def rows(client: Any, workers: list[str], where: str, options: argparse.Namespace) -> None:
    for mebibytes in options.mebibytes:
        for kind, makers in (("hop", (put,)), ("whole", (put, born))):
            figures: dict[str, list[float]] = {}
            # In turns, so that all meet the same noise.
            for turn in range(WARM_UPS + options.rounds):
                for make in (plain, *makers):
                    took = milliseconds(client, make, mebibytes << 20, workers, kind == "whole")
                    if turn >= WARM_UPS:
                        figures.setdefault(make.__name__, []).append(took)
            for make in makers:
                print(json.dumps(row(figures, make.__name__, where, kind, mebibytes)), flush=True)


def row(figures: dict[str, list[float]], name: str, where: str, kind: str, mebibytes: int) -> dict[str, Any]:
    def summary(found: list[float]) -> list[float]:
        return [round(each, 1) for each in (statistics.median(found), min(found), max(found))]

    ratio = statistics.median(figures[name]) / statistics.median(figures["plain"])
    return {
        "row": f"dask {where} {kind} {name}", "MiB": mebibytes, "ours_ms": summary(figures[name]),
        "plain_ms": summary(figures["plain"]), "ratio": round(ratio, 3), "reach": REACH.get((where, kind, mebibytes)),
    }  # fmt: skip


def measured(options: argparse.Namespace) -> None:
    """With two workers, the second one on another host if there is one."""
    import distributed

    near, far = options.brokers
    os.environ["ARRAYBRIDGE_ADDRESS"] = near
    host = options.host or "127.0.0.1"
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, host=host, dashboard_address=None, memory_limit=0) as made, \
            distributed.Client(made) as client, tasks.worker(made.scheduler_address, far, "far", *options.prefix):  # fmt: skip
        client.wait_for_workers(2)
        names = {each["name"]: address for address, each in client.scheduler_info()["workers"].items()}
        abd.start(client)
        rows(client, [names[0], names["far"]], "same" if near == far else "other", options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mebibytes", type=int, nargs="+", default=[64, 512])
    # Of the process that the script starts in the first namespace.
    for hidden in ("--brokers", "--prefix"):
        parser.add_argument(hidden, nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--host", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.brokers:
        measured(options)
        return 0
    from processes import start_daemon, stop_daemon

    with contextlib.ExitStack() as end:
        directories = [end.enter_context(tempfile.TemporaryDirectory(prefix="ab-")) for _ in "ab"]
        for directory in directories:
            end.callback(stop_daemon, start_daemon(directory, "--log-level", "warn"))
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--rounds",
            str(options.rounds),
            "--mebibytes",
            *map(str, options.mebibytes),
        ]
        subprocess.run([*command, "--brokers", directories[0], directories[0]], check=True)
        if reason := why_not():
            print(json.dumps({"row": "dask other", "skipped": reason}))
            return 0
        here, there = end.enter_context(hosts(2))
        wanted = ["--brokers", *directories, "--host", here.address, "--prefix", *there.prefix]
        subprocess.run([*here.prefix, *command, *wanted], check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
