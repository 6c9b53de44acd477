# SPDX-License-Identifier: Apache-2.0
"""What the tests of programs in C and in C++ have in common."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from arraybridge import Broker

Process = subprocess.Popen[str]


def request(number: int) -> dict:
    return {"n": number, "x": np.full(4, number)}


def line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def lines(process: Process) -> list[str]:
    return process.communicate()[0].splitlines()


def begun(record: Path) -> list[int]:
    """The numbers of the requests that servers have begun, in order."""
    return [int(row.split()[0]) for row in record.read_text().splitlines()] if record.exists() else []


def opened(server: Process) -> Process:
    """The same, once it says that it is open."""
    assert line(server) == f"open {server.pid}"
    return server


def shown(address: object, broker: Broker, *words: str) -> Any:
    """What `arraybridgectl service` shows."""
    tool = Path(os.environ["ARRAYBRIDGE_DAEMON"]).parents[1] / "client/ctl/arraybridgectl"
    command = [str(tool), "-H", str(address), "-n", broker.namespace, "-o", "json", "service", *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
