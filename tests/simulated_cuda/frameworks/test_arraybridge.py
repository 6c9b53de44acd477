# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch and Numba with arrays in a broker's GPU memory, between processes, by both kinds of handle."""

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from programs import DRIVER, HERE, one_gpu

BUILD = DRIVER.parents[2]
DAEMON = BUILD / "daemon" / "arraybridged"
# Without descriptors only cudaIpcMemHandle remains.
MACHINES = {"cuda_vmm": "", "cuda_ipc": ";off=103"}
VIA = {"cuda_vmm": "zero-copy-vmm", "cuda_ipc": "zero-copy-ipc"}

HELD = ";held"  # bytes are written only if a process waits for them

Do = Callable[[str], str]
Pairs = Callable[..., tuple[Do, Do]]


@pytest.fixture(params=MACHINES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.contextmanager
def served(machine: dict[str, str]) -> Iterator[str]:
    """The directory of a daemon that serves the simulated GPU."""
    strict = {key: value for key, value in machine.items() if key != "LD_PRELOAD"}
    strict["SIMULATED_CUDA"] = strict["SIMULATED_CUDA"].removeprefix("guest;")
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        ready, tell = os.pipe()
        words = [DAEMON, "--directory", directory, "--ready-fd", str(tell), "--cuda-driver", DRIVER, "--log-level", "warn"]
        daemon = subprocess.Popen(words, pass_fds=[tell], env=strict)
        os.close(tell)
        with os.fdopen(ready, "rb") as pipe:
            assert pipe.readline() == b"ready\n"
        yield directory
        daemon.terminate()
        assert daemon.wait() == 0, "it freed memory that a process had open, or its driver found another violation"


@contextlib.contextmanager
def client(address: str, environment: dict[str, str], *modules: str) -> Iterator[Do]:
    """A process with a Broker: a function that sends it one command and returns its answer."""
    process = subprocess.Popen(
        [sys.executable, HERE / "share_program.py", address, *modules],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    to, out = process.stdin, process.stdout

    def do(command: str) -> str:
        print(command, file=to, flush=True)
        return out.readline().removesuffix("\n")

    yield do
    process.communicate()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def pairs(libraries: Path, package: str) -> Iterator[Pairs]:
    """Two processes with Brokers and a daemon, by kind of handle and settings of their driver. Tests share them, because each
    process imports the frameworks first; so a name is one test's own."""
    with contextlib.ExitStack() as end:

        @functools.cache
        def pair(kind: str, settings: str = "") -> tuple[Do, Do]:
            machine = end.enter_context(one_gpu(libraries))
            machine["SIMULATED_CUDA"] += MACHINES[kind] + settings
            address = end.enter_context(served(machine))
            writer, reader = (end.enter_context(client(address, machine | {"PYTHONPATH": package})) for _ in range(2))
            return writer, reader

        yield pair


def test_tensors_cross_without_a_copy(pairs: Pairs, kind: str) -> None:
    writer, reader = pairs(kind)
    assert writer("put frame 5") == f"(2, 0) {kind}"
    assert reader("get frame 5") == f"cuda:0 {VIA[kind]} 0 right"
    assert writer("get frame 5") == f"cuda:0 {VIA[kind]} 0 right"
    assert reader("get_numpy frame 5") == "d2h 1 right"
    assert reader("get_on frame 5 cpu") == "cpu d2h 1 right"
    assert reader("get_on frame 5 cuda:7").startswith("DeviceUnavailable")
    assert reader("drop") == "0"


def test_a_put_comes_after_the_current_streams_work(pairs: Pairs, kind: str) -> None:
    writer, reader = pairs(kind)
    assert writer("put_from_side_stream side 6") == "ok"
    assert reader("get side 6") == f"cuda:0 {VIA[kind]} 0 right"


@pytest.mark.parametrize("verb", ["array", "tree"])
def test_asend_comes_after_the_stream_of_its_caller(pairs: Pairs, kind: str, verb: str) -> None:
    """Another thread exports the array, and has another current stream."""
    writer, reader = pairs(kind, HELD)
    assert writer(f"from_side_stream sent-{verb} 21 {verb}") == "ok"
    assert reader(f"received sent-{verb} 21") == "right"


@pytest.mark.parametrize("stream", ["none", "default", "own"])
def test_a_put_comes_after_the_work_of_numbas_stream(pairs: Pairs, kind: str, stream: str) -> None:
    """Numba says of its default stream what it says of complete arrays."""
    writer, reader = pairs(kind, HELD)
    assert writer(f"put_numba numba-{stream} 22 {stream}") == "ok"
    assert reader(f"get_numpy numba-{stream} 22").endswith("right")


def test_no_process_waits_if_the_framework_provides_the_stream(pairs: Pairs, kind: str) -> None:
    writer, reader = pairs(kind, HELD)
    assert writer("put_later ordered 12") == "1"
    assert reader("get ordered 12") == f"cuda:0 {VIA[kind]} 0 right"
    assert writer("put_later array 13") == "1"
    assert reader("numba array 13").startswith("right"), "NumPy has no stream, so its reader waits"


def test_a_reader_that_does_not_wait_reads_old_bytes(pairs: Pairs, kind: str) -> None:
    """The counter-test of all tests above: without the consumer's wait they would see these values."""
    writer, reader = pairs(kind, HELD)
    assert writer("put_later unordered 14") == "1"
    assert reader("get_without_a_wait unordered 14") == "wrong: [0.0, 0.0, 0.0], then right"


def test_an_array_in_broker_memory_is_put_without_a_copy(pairs: Pairs, kind: str) -> None:
    writer, reader = pairs(kind)
    assert writer("put_in_place placed 7") == "ok"
    assert reader("get placed 7") == f"cuda:0 {VIA[kind]} 0 right"


def test_between_host_and_gpu(pairs: Pairs, kind: str) -> None:
    writer, reader = pairs(kind)
    assert writer("put_host host 8") == "(1, 0)"
    assert reader("get_on host 8 cuda") == "cuda:0 h2d 1 right"
    assert reader("convert 9") == "right"


def test_attributes_and_refusals_of_a_view(pairs: Pairs, kind: str) -> None:
    writer, reader = pairs(kind)
    writer("put viewed 10")
    assert reader("view viewed 10") == "right"


def test_numba_reads_and_puts(pairs: Pairs, kind: str) -> None:
    writer, reader = pairs(kind)
    writer("put both 11")
    assert reader("numba both 11") == "right (2, 0)"
    assert writer("get both-numba 11") == f"cuda:0 {VIA[kind]} 0 right"


def test_numba_reads_and_writes_on_another_gpu_than_its_current(pairs: Pairs, kind: str) -> None:
    writer, reader = pairs(kind, ";devices=2")
    assert writer("put_on second 15 1") == "(2, 1)"
    assert reader("numba_elsewhere second 15") == "cuda:1 from 0"
    assert reader("numba_elsewhere second 15") == "cuda:1 from 0", "no context was poisoned"
    assert reader("drop") == "0"


def runs(program: str, names: Sequence[str], environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, str(HERE / program), *names], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, list(names)), done.stderr


def test_one_process_converts_without_a_broker(environment: dict[str, str], package: str) -> None:
    names = ["cleanup_gives_memory_back", "to_the_gpu_and_back", "numbers_beyond_the_last_are_refused", "out_of_memory_is_known"]
    runs("convert_program.py", names, environment | {"PYTHONPATH": package})


def test_layouts_and_dtypes_are_exact(environment: dict[str, str], package: str) -> None:
    names = [
        "torch_to_numba_and_back",
        "numba_to_torch",
        "compact_arrays_reach_the_host",
        "dtypes_beyond_numpys_are_kept_or_refused_by_name",
    ]
    runs("layout_program.py", names, environment | {"PYTHONPATH": package})
