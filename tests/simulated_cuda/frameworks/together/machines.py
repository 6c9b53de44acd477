# SPDX-License-Identifier: Apache-2.0
"""A machine with simulated GPUs, a daemon, and two processes that have real packages."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from programs import one_gpu
from test_arraybridge import MACHINES, Do, client, served

HERE = Path(__file__).resolve().parent
COMMANDS = (
    "bundle_commands", "bundle_in_place_commands", "cell_commands", "cupy_commands", "numba_commands", "one_memory_commands",
    "recipe_commands", "upload_commands", "via_commands",
)  # fmt: skip
XLA_COMMANDS = (*COMMANDS, "matrix_commands", "tensorflow_commands")


class Machine(NamedTuple):
    address: str  # of the daemon
    environment: dict[str, str]  # of its processes
    commands: Sequence[str]  # modules of these
    writer: Do
    reader: Do


Machines = Callable[..., Machine]


@contextlib.contextmanager
def started(libraries: Path, variables: dict[str, str], commands: Sequence[str], kind: str, settings: str) -> Iterator[Machine]:
    with contextlib.ExitStack() as end:
        machine = end.enter_context(one_gpu(libraries))
        machine["SIMULATED_CUDA"] += MACHINES[kind] + settings
        address = end.enter_context(served(machine))
        environment = machine | variables
        writer, reader = (end.enter_context(client(address, environment, *commands)) for _ in range(2))
        yield Machine(address, environment, commands, writer, reader)


@contextlib.contextmanager
def seeing(machine: Machine, settings: str) -> Iterator[Do]:
    """Another process of the machine, with these settings of its driver beside the machine's."""
    changed = machine.environment | {"SIMULATED_CUDA": machine.environment["SIMULATED_CUDA"] + settings}
    with client(machine.address, changed, *machine.commands) as do:
        yield do


class Lone:
    """A process of a machine that may end by a signal: lone_program.py. Its input is one command a line."""

    def __init__(self, machine: Machine) -> None:
        self.process = subprocess.Popen(
            [sys.executable, HERE / "lone_program.py", machine.address],
            env=machine.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> "Lone":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        print(command, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        """The next line, or "" if the process has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().removesuffix("\n")

    def do(self, command: str) -> str:
        self.tell(command)
        return self.answer()

    def end(self) -> int:
        """Ends its input; returns its exit status."""
        self.process.communicate()
        return self.process.returncode
