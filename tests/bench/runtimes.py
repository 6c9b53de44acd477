# SPDX-License-Identifier: Apache-2.0
"""Peers that start their processes themselves, dora-rs and Ray: the works of pipelines.py in their own terms."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import ENVIRONMENTS, Absent

HERE = Path(__file__).resolve().parent
LIMIT_S = 120
# For each work: the nodes, and the inputs of each node.
FLOWS = {
    "hop_4kib": {"hop_producer": "hop_echo", "hop_echo": "hop_producer"},
    "frame_copied": {"producer": "consumer", "consumer": "producer"},
    "relay_3_hops_6mib": {"producer": "consumer", "one": "producer", "two": "one", "consumer": "two"},
}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ab-peer-"))
    before = set(Path("/dev/shm").glob("*.zenoh"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        for left in set(Path("/dev/shm").glob("*.zenoh")) - before:  # of dora's nodes, which were killed
            left.unlink(missing_ok=True)


def ended(command: list[str], name: str, **options: Any) -> str:
    """The output of a program; it and its children are killed after LIMIT_S."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options)
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Absent(f"{name}: did not end within {LIMIT_S} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return said


def flow(work: str, rounds: int, home: Path) -> str:
    nodes = []
    for node, hears in FLOWS[work].items():
        role = "relay" if node in ("one", "two") else node
        nodes.append(
            {
                "id": node,
                "path": str(ENVIRONMENTS / "dora/bin/python"),
                "args": str(HERE / "dora_node.py"),
                "env": {"WORK": work, "ROLE": role, "ROUNDS": str(rounds), "RESULT": str(home / "result.json")},
                "inputs": {"in": {"source": f"{hears}/out", "queue_size": 64}},
                "outputs": ["out"],
            }
        )
    return json.dumps({"nodes": nodes})  # JSON is YAML


def dora(cpus: str, rounds: int) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """dora-rs: nodes of a dataflow, in its shared memory from 4 KiB on."""
    program = ENVIRONMENTS / "dora/bin/dora"
    if not program.exists():
        return {}, ["dora: deploy/setup peers has not installed it"]
    found: dict[str, dict[str, Any]] = {}
    absent = []
    for work in FLOWS:
        with folder() as home:
            (home / "flow.yml").write_text(flow(work, rounds, home))
            command = ["taskset", "-c", cpus, str(program), "run", str(home / "flow.yml"), "--stop-after", "60s"]
            try:
                said = until(command, home / "result.json", f"dora, {work}", cwd=home)
                found[work] = said
            except Absent as why:
                absent.append(str(why))
    return found, absent


def until(command: list[str], result: Path, name: str, **options: Any) -> dict[str, Any]:
    """The content of the file as soon as it exists, because a dataflow does not end by itself."""
    with (result.parent / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **options)
    end = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < end:
            with contextlib.suppress(OSError, json.JSONDecodeError):
                found: dict[str, Any] = json.loads(result.read_text())
                return found
            if process.poll() is not None:
                break
            time.sleep(0.05)
        lines = (result.parent / "log").read_text().strip().splitlines() or ["nothing said"]
        raise Absent(f"{name}: gave nothing within {LIMIT_S} s: {lines[-1][-200:]}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ray(cpus: str, rounds: int) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Ray's object store."""
    python = ENVIRONMENTS / "ray/bin/python"
    if not python.exists():
        return {}, ["ray: deploy/setup peers has not installed it"]
    with folder() as home:
        command = ["taskset", "-c", cpus, str(python), str(HERE / "ray_pipeline.py"), str(home), str(rounds)]
        environment = {**os.environ, "HOME": str(home), "OMP_NUM_THREADS": "1"}
        try:
            said = ended(command, "ray", env=environment)
        except Absent as why:
            return {}, [str(why)]
    rows = [json.loads(line) for line in said.splitlines() if line.startswith('{"row"')]
    found = {row.pop("row"): row for row in rows}
    return found, [] if "kill" in found else [f"ray: {said.strip().splitlines()[-1][-200:]}"]
