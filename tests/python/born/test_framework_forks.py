# SPDX-License-Identifier: Apache-2.0
"""Processes whose torch or JAX arrays are born in broker memory: forks, exits, threads, and what becomes of a lost daemon."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import Client, environment, start_daemon, stop_daemon

HEAD = """
import os, sys, threading, time
import numpy as np
from arraybridge import Broker
from in_place import is_memory_put_in_place

N = 1 << 20
broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")


def forked(work):
    "Runs it in a child; `go` lets the child continue."
    read, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(lambda: os.read(read, 1))
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return go, child


def joined(go, child):
    os.write(go, b"x")
    assert os.waitpid(child, 0)[1] == 0
"""

TORCH = {
    "a child frees, allocates and puts": """
import torch
with broker.born("torch") as born:
    tensor, freed = torch.full((N,), 1.0), torch.full((N,), 2.0)
    def child(wait):
        global freed
        wait()
        assert (tensor == 1).all() and (freed == 2).all(), "as they were"
        del freed
        made = torch.full((N,), 3.0)
        assert set(born.missed) == {"child"}, born
        assert not is_memory_put_in_place(broker, made, made.data_ptr())
        with broker.born("torch") as own:
            inside = torch.full((N,), 4.0)
        assert own.missed == {} and is_memory_put_in_place(broker, inside, inside.data_ptr())
        tensor.fill_(5)
        del inside
    running = forked(child)
    tensor.fill_(6)
    del freed
    joined(*running)
    assert (tensor == 6).all()
    before = born.arrays
    until = time.monotonic() + 60      # the arena was the child's, too: another one is fetched beside
    while born.arrays == before and time.monotonic() < until:
        later = torch.full((N,), 7.0)
    assert is_memory_put_in_place(broker, later, later.data_ptr())
    assert not is_memory_put_in_place(broker, tensor, tensor.data_ptr()), "its pages are the parent's own since the fork"
""",
    "forks beside threads that allocate": """
import torch
wrong, over = [], threading.Event()
def work(number):
    turn = 0
    while not over.is_set():
        turn += 1
        made = torch.full((N // 4,), float(number + turn % 100))
        if turn % 7 == 0:
            broker.put(made, "of-%d" % number, replace=True)
            made.add_(1)
            if (broker.get("of-%d" % number, "numpy") != number + turn % 100).any():
                wrong.append((number, turn, "put"))
        elif (made != number + turn % 100).any():
            wrong.append((number, turn))
with broker.born("torch", reserve_bytes=32 << 20):
    threads = [threading.Thread(target=work, args=(number,)) for number in (1000, 2000)]
    for thread in threads:
        thread.start()
    for turn in range(15):
        kept = torch.full((N,), float(turn))
        def child(wait):
            wait()
            assert (kept == turn).all()
            assert torch.ones(N)[0] == 1
        running = forked(child)
        kept.fill_(-1)
        joined(*running)
    over.set()
    for thread in threads:
        thread.join()
assert wrong == [], wrong
""",
}


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.parametrize("name", TORCH)
def test_forks(client: Client, name: str) -> None:
    said = client(HEAD + TORCH[name] + "\nprint('ok')", f"framework-forks-{time.time_ns()}")
    assert said == "ok\n"


EXITS = {
    "torch": """
import torch
make, address = (lambda: torch.full((N,), 1.0)), (lambda tensor: torch._C._data_address(tensor))
""",
    "jax": """
import jax
make, address = (lambda: jax.numpy.full((N,), 1.0)), (lambda array: array.unsafe_buffer_pointer())
""",
    "pyarrow": """
import pyarrow, pyarrow.compute
source = pyarrow.array(np.ones(N))
make, address = (lambda: pyarrow.compute.add(source, 1)), (lambda array: array.buffers()[1].address)
""",
}
EXIT = """
block = broker.born(sys.argv[3])
block.__enter__()
kept = [make() for _ in range(3)]
assert block.skipped == {} and is_memory_put_in_place(broker, kept[0], address(kept[0]))
sys.modules["kept"] = kept
class Late:
    def __del__(self):
        if sys.argv[3] != "pyarrow":    # whose functions import modules
            make()
late = Late()
late.array = make()
print("ok", flush=True)
"""


@pytest.mark.parametrize("framework", EXITS)
def test_a_process_ends_with_arrays_in_a_block(client: Client, framework: str) -> None:
    if not importlib.util.find_spec(framework):
        pytest.skip(f"{framework} is not installed")
    said = client(HEAD + EXITS[framework] + EXIT, f"framework-exits-{time.time_ns()}", framework)
    assert said == "ok\n"


GONE = """
import torch
with Broker(sys.argv[1], start="never") as broker, broker.born("torch", reserve_bytes=16 << 20):
    kept = torch.full((1 << 20,), 1.0)
print("made", flush=True)
sys.stdin.readline()
assert (kept == 1).all()
kept.add_(1)
grown = torch.cat([kept, kept])
del kept
assert (grown == 2).all()
with Broker(start="private") as other, other.born("torch", reserve_bytes=16 << 20) as born:
    more = torch.full((1 << 20,), 3.0)
    assert is_memory_put_in_place(other, more, more.data_ptr())
print("ok", flush=True)
"""


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_tensors_outlive_the_daemon(client: Client, tmp_path: Path) -> None:
    daemon = start_daemon(str(tmp_path), "--log-level", "error")
    program = HEAD.replace('broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")', "") + GONE
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "made\n"
        assert stop_daemon(daemon) == 0
        assert process.communicate("\n")[0] == "ok\n" and process.returncode == 0


SWITCHED_OFF = """
import ctypes, torch
with broker.born("torch") as born:
    tensor = torch.full((N,), 1.0)
assert is_memory_put_in_place(broker, tensor, tensor.data_ptr())
libc = ctypes.CDLL(None)
outside = [torch.full((N,), 2.0) for _ in range(5)]
assert born.arrays == 1
del tensor, outside            # a born block and others, freed after the block
for _ in range(100):           # blocks beside memory that other libraries of the process allocate
    with broker.born("torch") as born:
        inside = torch.full((N,), 3.0)
        libc.free.argtypes = [ctypes.c_void_p]
        libc.malloc.restype = ctypes.c_void_p
        libc.free(libc.malloc(4 << 20))
    assert born.arrays == 1 and (inside == 3).all()
print("ok")
"""


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_blocks_again_and_again_beside_other_libraries(client: Client) -> None:
    assert client(HEAD + SWITCHED_OFF, f"framework-again-{time.time_ns()}") == "ok\n"


TENSORFLOW = """
import gc, torch
import tensorflow as tf
with broker.born("tensorflow", "torch", "numpy", reserve_bytes=256 << 20) as born:
    x = tf.ones((1024, 1024))
    y = tf.matmul(x, x)
    broker.put(y, "y")
    got = broker.get("y", "numpy")
    assert (got == 1024).all() and born.by_framework["torch"] == (0, 0)
    del y
    gc.collect()
    others = [tf.matmul(x * number, x) for number in range(2, 8)]
    assert (got == 1024).all(), "TensorFlow made another tensor there"
assert "tensorflow" in born.skipped
print("ok")
"""


@pytest.mark.skipif(not importlib.util.find_spec("tensorflow"), reason="TensorFlow is not installed")
def test_what_tensorflow_puts_is_a_copy(client: Client) -> None:
    assert client(HEAD + TENSORFLOW, f"framework-tf-{time.time_ns()}") == "ok\n"
