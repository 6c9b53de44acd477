"""Real PyTorch and Numba with arrays in a broker's GPU memory, between processes, by both kinds of handle."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs import DRIVER, HERE, ROOT

BUILD = DRIVER.parents[2]
DAEMON = BUILD / "daemon" / "arraybridged"
# Without descriptors only cudaIpcMemHandle remains.
MACHINES = {"cuda_vmm": "", "cuda_ipc": ";off=103"}
VIA = {"cuda_vmm": "zero-copy-vmm", "cuda_ipc": "zero-copy-ipc"}

Do = Callable[[str], str]


@pytest.fixture(scope="module")
def package() -> Iterator[str]:
    """A folder from which arraybridge is imported: this tree's modules and the extension of its build."""
    built = [*BUILD.glob("python/_core*.so"), *map(Path, filter(None, [os.environ.get("ARRAYBRIDGE_CORE")]))]
    if not built or not DAEMON.exists():
        pytest.skip("the daemon or the extension is not built")
    with tempfile.TemporaryDirectory(prefix="ab-package-") as folder:
        inside = Path(folder) / "arraybridge"
        inside.mkdir()
        for each in [*(ROOT / "python" / "arraybridge").iterdir(), built[0]]:
            (inside / each.name).symlink_to(each)
        yield folder


@pytest.fixture(params=MACHINES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machine(environment: dict[str, str], kind: str) -> dict[str, str]:
    """The environment of every process of the test but the daemon."""
    return environment | {"SIMULATED_CUDA": environment["SIMULATED_CUDA"] + MACHINES[kind]}


@pytest.fixture
def address(machine: dict[str, str]) -> Iterator[str]:
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


@pytest.fixture
def client(address: str, machine: dict[str, str], package: str) -> Iterator[Callable[[], Do]]:
    """Starts a process with a Broker; returns a function that sends it one command."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> Do:
        process = subprocess.Popen(
            [sys.executable, HERE / "share_program.py", address],
            env=machine | {"PYTHONPATH": package}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        to, out = process.stdin, process.stdout

        def do(command: str) -> str:
            print(command, file=to, flush=True)
            return out.readline().removesuffix("\n")

        return do

    yield start
    for process in processes:
        process.communicate()
        assert process.returncode == 0


def test_tensors_cross_without_a_copy(client: Callable[[], Do], kind: str) -> None:
    writer, reader = client(), client()
    assert writer("put frame 5") == f"(2, 0) {kind}"
    assert reader("get frame 5") == f"cuda:0 {VIA[kind]} 0 right"
    assert writer("get frame 5") == f"cuda:0 {VIA[kind]} 0 right"
    assert reader("get_numpy frame 5") == "d2h 1 right"
    assert reader("get_on frame 5 cpu") == "cpu d2h 1 right"
    assert reader("get_on frame 5 cuda:7").startswith("DeviceUnavailable")
    assert reader("drop") == "0"


def test_a_put_comes_after_the_current_streams_work(client: Callable[[], Do], kind: str) -> None:
    writer, reader = client(), client()
    assert writer("put_from_side_stream frame 6") == "ok"
    assert reader("get frame 6") == f"cuda:0 {VIA[kind]} 0 right"


def test_no_process_waits_if_the_framework_provides_the_stream(
    address: str, machine: dict[str, str], package: str, client: Callable[[], Do], kind: str
) -> None:
    machine["SIMULATED_CUDA"] += ";held"  # bytes are written only if a process waits for them
    writer, reader = client(), client()
    assert writer("put_later frame 12") == "1"
    assert reader("get frame 12") == f"cuda:0 {VIA[kind]} 0 right"
    assert writer("put_later array 13") == "1"
    assert reader("numba array 13").startswith("right"), "NumPy has no stream, so its reader waits"


def test_a_reader_that_does_not_wait_reads_old_bytes(
    machine: dict[str, str], client: Callable[[], Do], kind: str
) -> None:
    """The counter-test of all tests above: without the consumer's wait they would see these values."""
    machine["SIMULATED_CUDA"] += ";held"
    writer, reader = client(), client()
    assert writer("put_later frame 14") == "1"
    assert reader("get_without_a_wait frame 14") == "wrong: [0.0, 0.0, 0.0], then right"


def test_an_array_in_broker_memory_is_put_without_a_copy(client: Callable[[], Do], kind: str) -> None:
    writer, reader = client(), client()
    assert writer("put_in_place frame 7") == "ok"
    assert reader("get frame 7") == f"cuda:0 {VIA[kind]} 0 right"


def test_between_host_and_gpu(client: Callable[[], Do]) -> None:
    writer, reader = client(), client()
    assert writer("put_host frame 8") == "(1, 0)"
    assert reader("get_on frame 8 cuda") == "cuda:0 h2d 1 right"
    assert reader("convert 9") == "right"


def test_attributes_and_refusals_of_a_view(client: Callable[[], Do]) -> None:
    writer, reader = client(), client()
    writer("put frame 10")
    assert reader("view frame 10") == "right"


def test_numba_reads_and_puts(client: Callable[[], Do], kind: str) -> None:
    writer, reader = client(), client()
    writer("put frame 11")
    assert reader("numba frame 11") == "right (2, 0)"
    assert writer("get frame-numba 11") == f"cuda:0 {VIA[kind]} 0 right"


@pytest.fixture
def two_gpus(machine: dict[str, str]) -> None:
    """Applies to the daemon and its clients. REQUIRES: requested before `address`."""
    machine["SIMULATED_CUDA"] += ";devices=2"


def test_numba_reads_and_writes_on_another_gpu_than_its_current(two_gpus: None, client: Callable[[], Do], kind: str) -> None:
    writer, reader = client(), client()
    assert writer("put_on frame 15 1") == "(2, 1)"
    assert reader("numba_elsewhere frame 15") == "cuda:1 from 0"
    assert reader("numba_elsewhere frame 15") == "cuda:1 from 0", "no context was poisoned"
    assert reader("drop") == "0"


def runs(program: str, name: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / program), name], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(
    "name",
    ["to_the_gpu_and_back", "numbers_beyond_the_last_are_refused", "cleanup_gives_memory_back", "out_of_memory_is_known"],
)
def test_one_process_converts_without_a_broker(environment: dict[str, str], package: str, name: str) -> None:
    runs("convert_program.py", name, environment | {"PYTHONPATH": package})


@pytest.mark.parametrize(
    "name",
    [
        "torch_to_numba_and_back",
        "numba_to_torch",
        "compact_arrays_reach_the_host",
        "dtypes_beyond_numpys_are_kept_or_refused_by_name",
    ],
)
def test_layouts_and_dtypes_are_exact(environment: dict[str, str], package: str, name: str) -> None:
    runs("layout_program.py", name, environment | {"PYTHONPATH": package})
