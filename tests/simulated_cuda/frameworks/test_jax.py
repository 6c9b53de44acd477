# SPDX-License-Identifier: Apache-2.0
"""Real JAX with arrays in a broker's GPU memory, between processes. XLA's kernels are interpreted."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import xla
from programs import HERE, one_gpu
from test_arraybridge import HELD, VIA, Do, client, served

Machine = tuple[str, dict[str, str]]


@pytest.fixture(scope="module")
def machine(libraries: Path, package: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A daemon's address, and the environment of its clients. Bytes are written only if a process waits for them."""
    with one_gpu(libraries) as made:
        made["SIMULATED_CUDA"] += HELD
        with served(made) as address:
            made |= xla.with_jax(tmp_path_factory.mktemp("xla"), libraries)
            yield address, made | {"PYTHONPATH": package}


@pytest.fixture(scope="module")
def pair(machine: Machine) -> Iterator[tuple[Do, Do]]:
    """Two processes with JAX."""
    with contextlib.ExitStack() as end:
        writer, reader = (end.enter_context(client(*machine, "jax_commands")) for _ in range(2))
        yield writer, reader


def test_kernels_compute_what_numpy_does(pair: tuple[Do, Do]) -> None:
    assert pair[0]("jax_compute") == "right"


def test_arrays_cross_without_a_copy(pair: tuple[Do, Do]) -> None:
    writer, reader = pair
    assert writer("jax_put frame 5") == "(2, 0) cuda_vmm"
    assert reader("jax_get frame 5") == f"{VIA['cuda_vmm']} 0 right"
    assert writer("jax_get frame 5") == f"{VIA['cuda_vmm']} 0 right"
    assert reader("get frame 5") == f"cuda:0 {VIA['cuda_vmm']} 0 right", "in PyTorch"
    assert reader("get_numpy frame 5") == "d2h 1 right"
    assert reader("numba frame 5") == "right (2, 0)"
    assert writer("put tensor 6") == "(2, 0) cuda_vmm"
    assert reader("jax_get tensor 6") == f"{VIA['cuda_vmm']} 0 right"


@pytest.mark.parametrize("verb", ["put", "unwaited", "send", "asend"])
def test_readers_come_after_a_pending_kernel(pair: tuple[Do, Do], verb: str) -> None:
    writer, reader = pair
    assert writer(f"jax_put_pending later-{verb} 7 {verb}") == "ok"
    if "send" in verb:
        assert reader(f"jax_received later-{verb} 7") == "right"
    else:
        assert reader(f"jax_get later-{verb} 7").endswith("right")
        assert reader(f"get_numpy later-{verb} 7").endswith("right")


def test_conversions(pair: tuple[Do, Do]) -> None:
    assert pair[0]("jax_convert 8") == "h2d right True, d2h right, d2d-copy right"


def test_a_conversion_comes_after_a_pending_kernel(pair: tuple[Do, Do]) -> None:
    assert pair[0]("jax_convert_pending 9") == "right right right"


def test_a_copy_is_ones_own(pair: tuple[Do, Do]) -> None:
    writer, reader = pair
    writer("jax_put kept 10")
    assert reader("jax_own kept 10") == "d2d-copy right right"


def test_a_donated_array_changes_no_share_and_no_alias(pair: tuple[Do, Do]) -> None:
    assert pair[0]("jax_donate donated 11") == (
        "JaxRuntimeError: buffer with external reference, right, right, UnsupportedArray: deleted or donated array"
    )


def ended(machine: Machine, command: str) -> subprocess.CompletedProcess[str]:
    """A process that does not survive this command."""
    address, environment = machine
    words = [sys.executable, HERE / "share_program.py", address, "jax_commands"]
    return subprocess.run(words, env=environment, input=f"{command}\n", capture_output=True, text=True, check=False)


def test_a_process_that_donates_a_share_ends_and_the_share_stays(machine: Machine, pair: tuple[Do, Do]) -> None:
    writer, reader = pair
    writer("jax_put whole 13")
    donor = ended(machine, "jax_donate_share whole")
    assert donor.returncode == -signal.SIGABRT, donor.stdout + donor.stderr
    assert "a write of 4 bytes" in donor.stderr
    assert reader("jax_get whole 13").endswith("right")


WHOLE = f"{VIA['cuda_vmm']} 0 right"


# The put waits for the kernel before it publishes. The simulated driver runs a paused kernel when a call waits for it, so that
# the writer may have published it when it dies.
@pytest.mark.parametrize(("when", "read"), [("before", ("ShareNotFound", WHOLE)), ("after", (WHOLE,))])
def test_an_array_of_a_writer_that_died_is_read_whole_or_not_at_all(
    machine: Machine, pair: tuple[Do, Do], when: str, read: tuple[str, ...]
) -> None:
    died = ended(machine, f"jax_die lost-{when} 12 {when}")
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    assert pair[1](f"jax_get lost-{when} 12").startswith(read)
