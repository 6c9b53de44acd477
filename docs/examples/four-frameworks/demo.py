# SPDX-License-Identifier: Apache-2.0
"""One array, four frameworks, one copy: processes share arrays through a broker daemon of their own.

A NumPy process puts an array; a PyTorch, a JAX and a TensorFlow process get it; the PyTorch process puts a result.
Exits with 0 only if every hop had the expected content, and if every reader's own pointer leads to the same physical
bytes.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from arraybridge import _bin

ELEMENTS = 16 * 1024 * 1024  # of int32: 64 MiB
HOP = Path(__file__).with_name("hop.py")
ROW = "{:<12} {:<4} {:<8} {:<9} {:>6} {:>9} {:>11}  {:<8} {}"


def start_daemon(directory: str, *flags: str) -> subprocess.Popen[bytes]:
    """A broker daemon in a directory of its own, ready when this returns. It ends with this process in any case."""
    ready, tell = os.pipe()
    standing, _ = os.pipe()  # the other end stays open as long as this process lives
    daemon = subprocess.Popen(
        [_bin.path("arraybridged"), "--directory", directory, "--log-level", "warn",
         "--ready-fd", str(tell), "--life-fd", str(standing), *flags],
        pass_fds=[tell, standing],
    )  # fmt: skip
    os.close(tell)
    os.close(standing)
    with os.fdopen(ready, "rb") as pipe:
        if pipe.readline() != b"ready\n":
            raise SystemExit(f"the daemon did not start: exit status {daemon.wait()}")
    return daemon


def start_hop(framework: str, directory: str, first: int, *actions: str) -> subprocess.Popen[str]:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [sys.executable, str(HOP), framework, directory, str(first), *actions],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **quiet},
    )


def problems_of(report: dict[str, Any], places: dict[str, str | None]) -> list[str]:
    """A claim of the report that is not true. The first report of a name has the place of its bytes."""
    name, place = report["name"], report["place"]
    problems = []
    if not report["content"]:
        problems.append("wrong content")
    if place is None:
        problems.append("not in broker memory")
    elif places.setdefault(name, place) != place:
        problems.append("other bytes than the producer's")
    if report["verb"] == "get" and report["copies"] != 0:
        problems.append(f"{report['copies']} copies: {'; '.join(report['reasons'])}")
    return problems


def show(report: dict[str, Any], problems: list[str]) -> None:
    same = "same bytes" if report["verb"] == "get" else "in broker memory"
    print(
        ROW.format(
            report["framework"],
            report["verb"],
            report["name"],
            report["route"],
            report["copies"],
            f"{report['bytes'] / 2**20:.0f} MiB",
            f"{report['elapsed_us']:,.0f} us",
            "ok" if report["content"] else "WRONG",
            same if not problems else "FAILED: " + ", ".join(problems),
        ),
        flush=True,
    )


def run(directory: str) -> bool:
    first = random.randrange(1_000_000)  # random, so that bytes of an earlier run do not match
    steps = [
        ("numpy", ["put", "frame", str(ELEMENTS)]),
        ("torch", ["get", "frame", "1", "double", "frame", "1", "doubled"]),
        ("jax", ["get", "frame", "1", "get", "doubled", "2"]),
        ("tensorflow", ["get", "frame", "1", "get", "doubled", "2"]),
        ("numpy", ["get", "doubled", "2"]),
    ]
    expected = sum(actions.count(verb) for _, actions in steps for verb in ("put", "get", "double"))
    places: dict[str, str | None] = {}
    seen, good = 0, True
    processes = []
    print(ROW.format("framework", "verb", "name", "route", "copies", "size", "time", "content", "pointer"))
    for framework, actions in steps:
        process = start_hop(framework, directory, first, *actions)
        processes.append(process)
        assert process.stdout is not None
        for _ in range(sum(actions.count(verb) for verb in ("put", "get", "double"))):
            line = process.stdout.readline()
            if not line:
                print(f"the {framework} process ended early: exit status {process.wait()}")
                break
            report = json.loads(line)
            problems = problems_of(report, places)
            show(report, problems)
            seen += 1
            good = good and not problems
    for process in processes:
        process.communicate("")
        good = good and process.returncode == 0
    print(
        f"{seen} of {expected} hops between {len(processes)} processes; "
        + ("all of them as claimed" if good and seen == expected else "NOT as claimed")
    )
    return good and seen == expected


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="arraybridge-demo-") as directory:
        daemon = start_daemon(directory)
        try:
            good = run(directory)
        finally:
            daemon.terminate()
            status = daemon.wait()
    if status != 0:
        print(f"the daemon's exit status was {status}")
    return 0 if good and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
