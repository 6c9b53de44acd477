# SPDX-License-Identifier: Apache-2.0
"""Where memory, or the interpreter, ends before its user: temporaries that only a dictionary holds, threads at exit."""

import gc
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest
from processes import environment

import arraybridge
from arraybridge import _core


class Holder(np.ndarray):
    """An array that can be referred to weakly."""


def test_the_dictionary_may_be_all_that_holds_the_bytes():
    held = np.arange(3.0).view(Holder)
    gone = weakref.ref(held)
    view = _core.wrap_array_interface({**held.__array_interface__, "keeps": held}, object())
    del held
    gc.collect()
    assert gone() is not None
    assert memoryview(view).tolist() == [0.0, 1.0, 2.0]
    del view
    gc.collect()
    assert gone() is None


def test_a_hundred_scalars_in_a_row_keep_their_values():
    packed = [arraybridge.asdlpack(np.float64(number)) for number in range(100)]
    assert [float(np.from_dlpack(one)) for one in packed] == list(range(100))


def test_a_tree_of_scalars_keeps_its_values(broker):
    numbers = [np.float64(1.5), np.int64(-7), np.float32(0.25), np.uint8(200), *np.arange(20.0)]
    broker.put({"row": numbers, "loss": np.float64(2.5)}, "scalars")
    got = broker.get("scalars")
    assert [one.item() for one in got["row"]] == [one.item() for one in numbers]
    assert got["loss"].item() == 2.5
    assert [broker.convert(one, "numpy").item() for one in numbers] == [one.item() for one in numbers]


CALLS = {
    "get": "broker.get('x')",
    "a wait": "broker.get('later', wait=30)",
    "copies": "array.__dlpack__(copy=True), arraybridge._core.copy_to_heap(array)",
    "drops": "broker.get('x'), broker.put(numpy.ones(3)).withdraw(), broker.flush()",
}


@pytest.mark.parametrize("call", CALLS)
def test_daemon_threads_in_a_call_when_the_interpreter_ends(address, call):
    code = f"""
        import sys, threading, time
        import numpy, arraybridge, arraybridge._core
        broker = arraybridge.Broker(sys.argv[1], namespace="ends", start="never")
        broker.put(numpy.arange(1000.0), "x", replace=True)
        array = arraybridge._core.wrap(numpy.ones(20000))
        begun = threading.Barrier(5)

        def spin():
            begun.wait()
            while True:
                {CALLS[call]}

        class Slow:  # lives until the interpreter ends, which takes a while: the threads come back meanwhile
            def __del__(self, sleep=time.sleep):
                sleep(0.3)

        sys.slow = Slow()
        for _ in range(4):
            threading.Thread(target=spin, daemon=True).start()
        begun.wait()
        time.sleep(0.05)
        """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), address],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
