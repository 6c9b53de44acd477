# SPDX-License-Identifier: Apache-2.0
"""Real packages allocate their arrays on the simulated GPU in a broker's memory: `Broker.born` on a GPU."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from machines import HERE, Lone, Machine, Machines
from programs import ROOT
from test_arraybridge import Do, client

PACKAGES = ["cupy", "numba", "torch", "cuda.core"]


@pytest.fixture(scope="module")
def machine(machines: Machines) -> Machine:
    return machines("cuda_vmm")


@pytest.fixture(scope="module")
def writer(machine: Machine) -> Iterator[Do]:
    """A process in which no test has used Numba before it enters a block."""
    with client(machine.address, machine.environment, "born_commands") as process:
        yield process


@pytest.fixture(scope="module")
def reader(machine: Machine) -> Iterator[Do]:
    with client(machine.address, machine.environment, "born_commands") as process:
        yield process


@pytest.mark.parametrize("of", PACKAGES)
def test_an_array_is_published_where_it_was_born(writer: Do, reader: Do, of: str) -> None:
    name = writer(f"born_put {of} whole-{of} 5")
    assert reader(f"first_of cupy {name}") == "6.0 zero-copy-vmm", "it sees what is written into the array"


@pytest.mark.parametrize("of", PACKAGES)
def test_a_part_of_a_block_is_copied(writer: Do, reader: Do, of: str) -> None:
    name = writer(f"part_put {of} part-{of} 5")
    assert reader(f"first_of cupy {name}") == "5.0 zero-copy-vmm"


def test_a_tensor_without_a_segment_of_its_own_is_copied(writer: Do, reader: Do) -> None:
    name = writer("small_put small 5")
    assert reader(f"first_of cupy {name}") == "5.0 zero-copy-vmm"


@pytest.mark.parametrize("of", PACKAGES)
def test_what_was_published_is_not_used_again(writer: Do, reader: Do, of: str) -> None:
    assert writer(f"later_arrays_are_elsewhere {of} kept-{of} 5") == "apart"
    assert reader(f"is_right cupy kept-{of} 5") == "right"


@pytest.mark.parametrize("of", PACKAGES)
def test_memory_of_ended_shares_is_used_again(writer: Do, reader: Do, of: str) -> None:
    assert writer(f"replaced {of} again-{of}") == "bounded"
    assert reader(f"is_right cupy again-{of} 19") == "right"


@pytest.mark.parametrize("of", PACKAGES)
def test_arrays_that_are_not_born(writer: Do, of: str) -> None:
    assert writer(f"outside {of}") == "not born"


@pytest.mark.parametrize("of", ["cupy", "numba"])
def test_all_threads(writer: Do, of: str) -> None:
    assert writer(f"everywhere {of}") == "1 born"


@pytest.mark.parametrize("of", PACKAGES)
def test_blocks_in_blocks(writer: Do, reader: Do, of: str) -> None:
    name = writer(f"nested {of} nested-{of} 5")
    assert reader(f"first_of cupy {name}") == "6.0 zero-copy-vmm", "the outer block goes on after the inner one"


@pytest.mark.parametrize("of", ["jax", "tensorflow"])
def test_a_framework_without_a_hook(writer: Do, of: str) -> None:
    assert writer(f"without_a_hook {of}") == f"0 {of} takes no other allocator on a GPU, so that a put copies its arrays"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("numpy", 'born takes "cupy", "numba", "torch", "cuda.core" on a GPU, not \'numpy\': name one of them'),
        ("torch+cuda.core everywhere", "everywhere=True is not possible for torch and cuda.core"),
    ],
)
def test_wishes_that_are_refused(writer: Do, words: str, answer: str) -> None:
    assert writer(f"refused {words}").startswith(f"InvalidRequest: {answer}")


def test_numba_has_chosen_its_memory_before(machine: Machine) -> None:
    with client(machine.address, machine.environment, "born_commands", "cell_commands") as process:
        assert process("cell_put numba before-born 5").startswith("(2, 0)")
        assert process("refused numba").startswith("InvalidRequest: Numba chooses its memory manager when it first uses a GPU")


@pytest.mark.parametrize("of", ["cupy", "numba"])
def test_an_array_is_freed_while_the_gpu_writes_it(writer: Do, of: str) -> None:
    assert writer(f"freed_with_work_pending {of}") == "elsewhere"


def test_a_stream_gets_back_what_was_freed_on_it(writer: Do) -> None:
    assert writer("freed_on_a_stream") == "in order"


@pytest.mark.parametrize(
    ("of", "error"),
    [
        ("cupy", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 68,719,476,736 bytes"),
        ("numba", "numba.cuda.cudadrv.driver.CudaAPIError: [2] no memory for an array in the broker"),
        ("torch", "torch.OutOfMemoryError: "),
        ("cuda.core", "cuda.core._utils.cuda_utils.CUDAError: CUDA_ERROR_OUT_OF_MEMORY: no memory for a buffer in the broker"),
    ],
)
def test_the_framework_says_that_there_is_no_memory(writer: Do, of: str, error: str) -> None:
    assert error in writer(f"no_memory {of}")


@pytest.mark.parametrize(
    ("of", "answer"),
    [
        ("cupy", "InvalidRequest: this process was forked inside of a block of born()"),
        ("numba", "CudaDriverError: CUDA initialized before forking"),
        ("torch", "RuntimeError: Cannot re-initialize CUDA in forked subprocess"),
    ],
)
def test_a_forked_child_is_told(writer: Do, of: str, answer: str) -> None:
    assert writer(f"forked {of}").startswith(answer)


@pytest.mark.parametrize("of", ["cupy", "torch"])
def test_an_allocation_waits_until_another_array_is_gone(machines: Machines, of: str) -> None:
    small = machines("cuda_vmm", ";memory=67108864")
    with client(small.address, small.environment, "born_commands") as process:
        assert process(f"waits_for_memory {of} {24 << 20}") == "1 born"


@pytest.mark.parametrize("of", PACKAGES)
def test_the_interpreter_ends_with_arrays_that_live(machine: Machine, of: str) -> None:
    words = [sys.executable, HERE / "born_at_exit.py", machine.address, of]
    done = subprocess.run(words, env=machine.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "born\n", "")


@pytest.mark.parametrize("of", ["cupy", "numba", "torch"])
def test_its_process_is_killed_while_the_gpu_writes_it(machine: Machine, of: str) -> None:
    with Lone(machine) as reader:
        with Lone(machine) as writer:
            assert writer.do(f"put_born_pending {of} ordered-{of} 70") == "(2, 0) pending"
            assert reader.do(f"read_first ordered-{of}") == "70.0", "a reader comes after the work"
            assert writer.do(f"put_born_pending {of} killed-{of} 71") == "(2, 0) pending"
            writer.process.send_signal(signal.SIGKILL)
            writer.process.wait()
        answer = reader.do(f"read_first killed-{of}")
        assert answer.startswith("ShareNotFound") or "died before they were complete" in answer
        assert reader.do(f"read_first ordered-{of}") == "70.0"
        assert reader.end() == 0


def test_the_example(machine: Machine) -> None:
    example = ROOT / "docs/examples/born/gpu.py"
    program = "import runpy, sys, real_packages; real_packages.package('cupy'); runpy.run_path(sys.argv[1], run_name='__main__')"
    environment = machine.environment | {"ARRAYBRIDGE_ADDRESS": machine.address}
    words = [sys.executable, "-c", program, example]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["in broker memory: 6 arrays; missed: none", "another process reads 2 to 100001"]
