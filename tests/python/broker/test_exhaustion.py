# SPDX-License-Identifier: Apache-2.0
"""What has run out is named by the error's class and message: descriptors of this process above all."""

import errno
import os
import pickle
import resource
from collections.abc import Callable

import pytest

import arraybridge
from arraybridge import BrokerError, MemoryConversionError, OutOfDescriptors, OutOfMemory, UnsupportedArray, errors

LIMIT = 256

# A process at its limit: each call ends well, or says what has run out.
PROGRAM = """
import os, resource, sys
import numpy as np
{imports}
import arraybridge
from arraybridge import OutOfDescriptors
broker = arraybridge.Broker(sys.argv[1], namespace="exhausted", start="never")
if {warm}:
    broker.put(np.ones(3), "there", replace=True)
    broker.get("there")
else:
    broker.address
mine = np.ones(3)
class Own:
    def __init__(self): self.array = np.ones(3)
    def __dlpack__(self, **_): return os.open("/dev/null", os.O_RDONLY)
    def __dlpack_device__(self): return 1, 0
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
held = []
def exhaust():
    while True:
        try:
            held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return
calls = {{
    "put": lambda: broker.put(mine, "mine"),
    "put large": lambda: broker.put(np.ones(1 << 20), "large"),
    "put sealed": lambda: broker.put(mine, "sealed", sealed=True),
    "put without waiting": lambda: broker.put(mine, "not waited for", wait=False),
    "put of a class of ours": lambda: broker.put(Own(), "own"),
    "get": lambda: broker.get("there"),
    "get torch": lambda: broker.get("there", "torch"),
    "get jax": lambda: broker.get("there", "jax"),
    "get tensorflow": lambda: broker.get("there", "tensorflow"),
    "convert": lambda: broker.convert(mine, "torch"),
    "convert_memory": lambda: arraybridge.convert_memory(mine, "numpy", "torch", None),
    "asdlpack": lambda: arraybridge.asdlpack(Own()),
    "a new broker": lambda: arraybridge.Broker(sys.argv[1], start="never").list(),
    "a private broker": lambda: arraybridge.Broker(start="private").list(),
}}
told = []
for name, call in calls.items():
    exhaust()  # again: a connection that was lost for want of one has given its own back
    try:
        call()
        told.append(f"{{name}}: done")
    except OutOfDescriptors as error:
        told.append(f"{{name}}: {{error}}")
    except BaseException as error:
        told.append(f"{{name}}: WRONG {{type(error).__name__}}: {{error}}")
for descriptor in held:
    os.close(descriptor)
print("\\n".join(told))
"""


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "fresh"])
def test_a_process_without_descriptors_is_told_so(client: Callable[..., str], warm: bool) -> None:
    lines = client(PROGRAM.format(limit=LIMIT, warm=warm, imports="")).splitlines()
    assert not [line for line in lines if "WRONG" in line], "\n".join(lines)
    refused = [line for line in lines if not line.endswith(": done")]
    assert [line.split(": ")[0] for line in refused if "put of a class" in line or "a new broker" in line]
    for line in refused:
        assert f"RLIMIT_NOFILE {LIMIT}" in line
        assert "ulimit -n" in line


def test_what_ran_out_is_found_behind_what_it_was_turned_into() -> None:
    def raised(inner: Exception) -> Exception:
        try:
            try:
                raise inner
            except Exception as error:
                raise ImportError("no module") from error
        except ImportError as outer:
            return outer

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for number, words in ((errno.EMFILE, f"RLIMIT_NOFILE {limit}"), (errno.ENFILE, "fs.file-max")):
        error = errors.raised_by(raised(OSError(number, os.strerror(number))), "numpy", "torch", "place")
        assert isinstance(error, OutOfDescriptors)
        assert isinstance(error, OSError)
        assert (error.errno, error.code, error.reason) == (number, 8, "DESCRIPTOR_LIMIT")
        assert words in str(error)
        assert "numpy to torch" in str(error)
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), str(copied), copied.errno) == (OutOfDescriptors, str(error), number)
    for inner in (MemoryError("all"), OSError(errno.ENOMEM, "all")):
        assert isinstance(errors.raised_by(raised(inner), "numpy", "torch", "place"), OutOfMemory)
    for inner in (OSError(errno.EACCES, "no"), ValueError("no"), UnsupportedArray("a", "b", "c", "d")):
        error = errors.raised_by(raised(inner), "numpy", "torch", "place")
        assert type(error) is MemoryConversionError
    assert not issubclass(OutOfDescriptors, MemoryError), "memory that is given back helps nobody here"


def test_an_array_whose_framework_has_no_descriptor_is_not_called_unsupported(broker: arraybridge.Broker) -> None:
    class Array:
        def __dlpack__(self, **_: object) -> object:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(OutOfDescriptors, match="RLIMIT_NOFILE") as error:
        broker.put(Array(), "x")
    assert isinstance(error.value, BrokerError)
    assert isinstance(error.value.__cause__, OSError)
    with pytest.raises(OutOfDescriptors):
        arraybridge.asdlpack(Array())
