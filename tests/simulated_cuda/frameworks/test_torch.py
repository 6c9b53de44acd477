# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch on the simulated driver. Enqueued work runs late, so a forgotten wait shows as 0xCD bytes."""

from programs import Program


def test_one_program(program: Program) -> None:
    assert program("torch_program.py", "copies", "pinned", "exchange", "queues") == ["done"]


def test_a_kernel_fails_loudly(program: Program) -> None:
    assert program("torch_program.py", "kernels") == ["AcceleratorError", "done"]


def test_a_side_stream_is_waited_for_or_its_work_has_not_happened(program: Program) -> None:
    assert program("torch_program.py", "side_stream_waited_for") == ["new", "done"]
    assert program("torch_program.py", "side_stream_forgotten") == ["0xcdcdcdcd", "done"]


def test_two_processes_share_a_block(program: Program) -> None:
    assert program("torch_peer.py", "wait") == ["right"]


def test_a_reader_that_forgets_the_event_reads_old_bytes(program: Program) -> None:
    assert program("torch_peer.py", "forget") == ["0xcdcdcdcd"]
