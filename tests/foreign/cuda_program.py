# SPDX-License-Identifier: Apache-2.0
"""A C++ client in its own process, on the simulated driver: cuda_client_program of tests/integration."""

from __future__ import annotations

import os
import subprocess

from foreign_client import BUILD, PATIENCE_S, Daemon

DRIVER = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"
PROGRAM = BUILD / "tests/integration/cuda_client_program"


class CudaProgram:
    """`machine`: added to $SIMULATED_CUDA. `within`: words of the command before the program."""

    def __init__(self, daemon: Daemon, machine: str = "", *within: str) -> None:
        self.process = subprocess.Popen(
            [*within, PROGRAM, daemon.directory, DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SIMULATED_CUDA": f"{os.environ['SIMULATED_CUDA']};{machine}"},
        )

    def do(self, command: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)
