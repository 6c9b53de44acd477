# SPDX-License-Identifier: Apache-2.0
"""Processes with real packages are stopped and killed while the GPU still writes arrays that they have put."""

import signal
import time
from collections.abc import Iterator

import pytest
from machines import Lone, Machine, Machines

DIED = "the producer of these bytes died before they were complete"


@pytest.fixture(scope="module")
def machine(machines: Machines) -> Machine:
    return machines("cuda_vmm")


# One for each test: a stream that waited for work which was lost executes nothing any more.
@pytest.fixture
def reader(machine: Machine) -> Iterator[Lone]:
    with Lone(machine) as process:
        assert process.do("read_numpy nothing 0").startswith("ShareNotFound"), "it is connected"
        yield process
        assert process.end() == 0


@pytest.mark.parametrize("framework", ["numba", "torch", "cupy"])
def test_a_writer_is_stopped_and_killed(machine: Machine, reader: Lone, framework: str) -> None:
    """Work of the framework writes the arrays; while its process is stopped, it stays queued."""
    late, lost = f"late-{framework}", f"lost-{framework}"
    with Lone(machine) as writer:
        assert writer.do(f"put_pending {framework} {late} 70") == "(2, 0) pending"
        writer.process.send_signal(signal.SIGSTOP)
        reader.tell(f"wait_for read_numpy {late} 70")
        assert reader.answer() == "waits"
        writer.process.send_signal(signal.SIGCONT)
        assert reader.answer() == "right", "it gets the bytes when the writer goes on"

        assert writer.do(f"put_pending {framework} {lost} 71") == "(2, 0) pending"
        assert reader.do(f"hold {lost}") == "held"
        before = int(reader.do("lost"))
        writer.process.send_signal(signal.SIGSTOP)
        reader.tell(f"wait_for read {framework} {lost} 71")
        assert reader.answer() == "waits"
        writer.process.kill()
        assert DIED in reader.answer(), "it does not wait for ever"

    while int(reader.do("lost")) == before:
        time.sleep(0.01)
    assert DIED in reader.do("read_held 71")
    assert reader.do(f"read_numpy {lost} 71").startswith("ShareNotFound")


def test_a_reader_of_the_host_is_told(machine: Machine, reader: Lone) -> None:
    with Lone(machine) as writer:
        assert writer.do("put_pending torch host 72") == "(2, 0) pending"
        writer.process.send_signal(signal.SIGSTOP)
        reader.tell("wait_for read_numpy host 72")
        assert reader.answer() == "waits"
        writer.process.kill()
        assert DIED in reader.answer()
