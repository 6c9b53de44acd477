# SPDX-License-Identifier: Apache-2.0
"""GPU memory between containers on the simulated driver: VMM descriptors work, legacy handles are refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from container import ADDRESS, BUILD, Broker, Container
from test_host_memory import eventually

DRIVER = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"
PROGRAM = BUILD / "tests/integration/cuda_client_program"
MIB = 1 << 20


class Gpu(Container):
    """A C++ client with arrays on the simulated GPU."""

    def __init__(self, sockets: Path, machine: str, pids: bool = True) -> None:
        super().__init__(sockets, PROGRAM, ADDRESS, DRIVER, environment={"SIMULATED_CUDA": machine}, pids=pids)

    def allocations(self) -> set[int]:
        """The simulated driver's blocks that this process has mapped: each is an unnamed file, identified by its inode."""
        maps = Path(f"/proc/{self.pid()}/maps").read_text()
        return set(map(int, re.findall(r"^\S+ \S+ \S+ \S+ (\d+) +/memfd:simulated_cuda", maps, re.MULTILINE)))


@pytest.fixture(autouse=True)
def built() -> None:
    for each in (DRIVER, PROGRAM):
        if not each.exists():
            pytest.skip(f"{each.name} is not built")


def start(run: Callable[..., Any], machine: str) -> tuple[Any, Any, Any]:
    broker = run(Broker, "--cuda-driver", DRIVER, environment={"SIMULATED_CUDA": machine})
    return broker, run(Gpu, machine), run(Gpu, machine)


def test_vmm_descriptors_need_only_the_socket(run: Callable[..., Any]) -> None:
    broker, maker, reader = start(run, "devices=1")
    assert maker.line("publish_in_place frame 7") == "ok"
    assert reader.line("get frame") == "7"
    # One mapping of the producer's arena and no second arena: nothing was copied.
    assert reader.line("mapped") == "1"
    assert maker.line("arenas") == "1"
    # The producer's stream is still writing these bytes, and events do not work here: the broker answers when they are written.
    assert maker.line("put_later late 8") == "later"
    assert reader.line("get late") == "8"
    maker.kill()
    assert reader.line("look frame") == "7"
    for name in ("frame", "late"):
        reader.line(f"drop {name}")
    reader.line("flush")
    assert reader.line("leases") == "0"


def test_the_reader_maps_the_drivers_own_allocation(run: Callable[..., Any]) -> None:
    broker, maker, reader = start(run, "devices=1")
    before, elsewhere = maker.allocations(), reader.allocations()
    assert maker.line("publish_in_place frame 7") == "ok"
    (made,) = maker.allocations() - before
    assert reader.allocations() == elsewhere
    assert reader.line("get frame") == "7"
    assert reader.allocations() - elsewhere == {made}
    # The broker created it and keeps it; only the reader has mapped it.
    assert made in {link.stat().st_ino for link in Path(f"/proc/{broker.pid()}/fd").iterdir()}


def test_a_killed_readers_memory_is_released(run: Callable[..., Any]) -> None:
    _, maker, reader = start(run, "devices=1")
    assert maker.line("put frame 3") == "ok"
    assert reader.line("get frame") == "3"
    reader.kill()
    eventually("its lease ends", lambda: maker.line("leases") == "0")
    assert maker.line("withdraw frame") == "OK"
    assert maker.line("put frame 4") == "ok"


def test_legacy_handles_are_refused_with_the_reason(run: Callable[..., Any]) -> None:
    # 103: the driver exports no descriptors, so only legacy handles remain.
    _, maker, _ = start(run, "devices=1;off=103")
    answer = maker.line("put frame 3")
    assert "cuda_ipc is refused: it runs in another PID namespace" in answer


def test_an_existing_legacy_handle_is_refused_to_a_reader_elsewhere(run: Callable[..., Any]) -> None:
    # `dir`: the directory in which processes of one machine find each other's events; here all of these could.
    machine = f"devices=1;off=103;dir={ADDRESS}"
    run(Broker, "--cuda-driver", DRIVER, environment={"SIMULATED_CUDA": machine}, pids=False)
    maker, neighbour, elsewhere = run(Gpu, machine, pids=False), run(Gpu, machine, pids=False), run(Gpu, machine)
    assert maker.line("put frame 3") == "ok"
    assert neighbour.line("get frame") == "3"
    assert "cuda_ipc is refused: it runs in another PID namespace" in elsewhere.line("get frame")
    assert elsewhere.line("mapped") == "0"
    assert maker.line("leases") == "1"  # the other container's
