# SPDX-License-Identifier: Apache-2.0
"""Real frameworks with arrays in a broker's GPU memory, between processes, on this machine's GPU.

tests/gpu/run starts it and names the build folder and the driver in the environment. The program for PyTorch is that of
tests/simulated_cuda/frameworks, here without preloaded libraries.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SHARE_PROGRAM = HERE.parents[1] / "simulated_cuda/frameworks/share_program.py"
DRIVER = os.environ.get("ARRAYBRIDGE_CUDA_DRIVER", "")
DAEMON = os.environ.get("ARRAYBRIDGE_DAEMON", "")

Do = Callable[[str], str]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The directory of a daemon that serves the GPU."""
    if not DRIVER or not DAEMON:
        pytest.skip("started by tests/gpu/run alone")
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        ready, tell = os.pipe()
        words = [DAEMON, "--directory", directory, "--ready-fd", str(tell), "--cuda-driver", DRIVER, "--log-level", "warn"]
        daemon = subprocess.Popen(words, pass_fds=[tell], env=environment)
        os.close(tell)
        with os.fdopen(ready, "rb") as pipe:
            assert pipe.readline() == b"ready\n"
        yield directory
        daemon.terminate()
        assert daemon.wait() == 0


@contextlib.contextmanager
def running(program: Path, address: str, environment: dict[str, str] | None = None) -> Iterator[Do]:
    """A program with a Broker, as a function that sends one command."""
    process = subprocess.Popen(
        [sys.executable, program, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
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
def torch_here() -> None:
    code = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 1)"
    if subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode != 0:
        pytest.skip("torch is not here, or sees no GPU")


# One process of each for all tests, because importing PyTorch takes longer than they do.
@pytest.fixture(scope="module")
def writer(torch_here: None, address: str) -> Iterator[Do]:
    with running(SHARE_PROGRAM, address) as do:
        yield do


@pytest.fixture(scope="module")
def reader(torch_here: None, address: str) -> Iterator[Do]:
    with running(SHARE_PROGRAM, address) as do:
        yield do


# Their packages need more than a preloaded runtime there.
ELSEWHERE_IF_SIMULATED = ("cupy", "jax")


def needs(*modules: str) -> None:
    for module in modules:
        if module in ELSEWHERE_IF_SIMULATED and "SIMULATED_CUDA" in os.environ:
            pytest.skip(f"tests/simulated_cuda/frameworks runs {module} on the simulated driver")
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not here")


def test_tensors_cross_without_a_copy(writer: Do, reader: Do) -> None:
    put = writer("put frame5 5")
    assert put in ("(2, 0) cuda_vmm", "(2, 0) cuda_ipc")
    via = "zero-copy-vmm" if put.endswith("vmm") else "zero-copy-ipc"
    assert reader("get frame5 5") == f"cuda:0 {via} 0 right"
    assert reader("get_numpy frame5 5") == "d2h 1 right"
    assert reader("get_on frame5 5 cpu") == "cpu d2h 1 right"
    assert reader("drop") == "0"


def test_a_put_comes_after_the_current_streams_work(writer: Do, reader: Do) -> None:
    assert writer("put_from_side_stream frame6 6") == "ok"
    assert reader("get frame6 6").endswith(" 0 right")


def test_what_is_written_into_broker_memory_is_put_without_a_copy(writer: Do, reader: Do) -> None:
    assert writer("put_in_place frame7 7") == "ok"
    assert reader("get frame7 7").endswith(" 0 right")


def test_between_host_and_gpu(writer: Do, reader: Do) -> None:
    assert writer("put_host frame8 8") == "(1, 0)"
    assert reader("get_on frame8 8 cuda") == "cuda:0 h2d 1 right"
    assert reader("convert 9") == "right"


def test_what_a_view_says_and_refuses(writer: Do, reader: Do) -> None:
    writer("put frame10 10")
    assert reader("view frame10 10") == "right"


def test_numba_reads_and_puts(writer: Do, reader: Do) -> None:
    needs("numba")
    writer("put frame11 11")
    assert reader("numba frame11 11") == "right (2, 0)"
    assert writer("get frame11-numba 11").endswith(" 0 right")


@pytest.mark.parametrize("framework", ["cupy", "jax"])
def test_another_framework_reads_and_puts(address: str, framework: str) -> None:
    needs(framework)
    program = HERE / f"{framework}_program.py"
    with running(program, address) as one, running(program, address) as other:
        assert one(f"put own_{framework} 14") == "(2, 0)"
        assert other(f"read own_{framework} 14") == "right"


@pytest.mark.parametrize("framework", ["cupy", "jax"])
def test_another_framework_and_torch(request: pytest.FixtureRequest, address: str, framework: str) -> None:
    needs(framework)
    writer: Do = request.getfixturevalue("writer")
    writer(f"put for_{framework} 12")
    with running(HERE / f"{framework}_program.py", address) as other:
        assert other(f"read for_{framework} 12") == "right"
        assert other(f"put of_{framework} 13") == "(2, 0)"
        assert writer(f"get of_{framework} 13").endswith(" 0 right")


@pytest.fixture(scope="module")
def orderly(address: str) -> Iterator[tuple[Do, Do]]:
    """Two processes that hand arrays on while they are written. On the simulated driver only a wait lets work run."""
    environment = dict(os.environ)
    if "SIMULATED_CUDA" in environment:
        environment["SIMULATED_CUDA"] += ";held"
    program = HERE / "order_program.py"
    with running(program, address, environment) as one, running(program, address, environment) as other:
        yield one, other


# JAX has one stream.
STREAMS = [(framework, stream) for framework in ("torch", "numba", "cupy") for stream in ("default", "side", "thread")] + [
    ("jax", "default")
]


@pytest.mark.parametrize("verb", ["put", "put_later", "send", "asend"])
@pytest.mark.parametrize(("framework", "stream"), STREAMS)
def test_readers_wait_for_the_work_that_writes_an_array(request: pytest.FixtureRequest, framework: str, stream: str, verb: str) -> None:
    needs(framework)
    one, other = request.getfixturevalue("orderly")
    name = f"order-{framework}-{stream}-{verb}"
    assert one(f"hand_on {name} {framework} {stream} {verb}") == "ok"
    assert other(f"read {name} {framework} {stream} {verb}") == "right"
    assert one("forget") == "ok"


@pytest.mark.parametrize(("framework", "stream"), STREAMS)
def test_memory_is_not_written_again_under_a_readers_queued_copy(request: pytest.FixtureRequest, framework: str, stream: str) -> None:
    needs(framework)
    one, other = request.getfixturevalue("orderly")
    name = f"late-{framework}-{stream}"
    assert one(f"put_complete {name} {framework} 2") == "ok"
    assert other(f"read_late {name} {framework} {stream}") == "ok"
    for value in range(3, 9):
        assert one(f"put_complete {name} {framework} {value}") == "ok"
    assert other("copied") == "right"
