# SPDX-License-Identifier: Apache-2.0
"""What writes do that were made through every route: `writes_program.py DIRECTORY FIRST`, a daemon's and a case's number.

For each case a line: its name, a tab, and "kept" or what was wrong. A write that ends the process ends the lines.
"""

import ctypes
import mmap
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import tensorflow as tf
import torch
from arrays import aligned, frozen
from processes import FRAMEWORKS

import arraybridge
import arraybridge.dlpack
from arraybridge import View, ZeroCopyUnavailable, asdlpack, convert_memory

COUNT = 64
VALUES = np.arange(COUNT, dtype="float32")
Producer = Callable[[arraybridge.Broker], tuple[Any, Callable[[], Any]]]


def constant() -> Any:
    return frozen(aligned((COUNT,)))


def mapped() -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        file.write(VALUES.tobytes())
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def same(array: Any) -> tuple[Any, Callable[[], Any]]:
    return array, lambda: np.frombuffer(array, "f4") if isinstance(array, (bytes, memoryview, mmap.mmap)) else np.asarray(array)


def shared(broker: arraybridge.Broker, take: Callable[[arraybridge.Share], Any]) -> tuple[Any, Callable[[], Any]]:
    share = broker.put(VALUES, "written", replace=True)
    return take(share), lambda: np.array(broker.get(share))


def of_a_tree(broker: arraybridge.Broker) -> tuple[Any, Callable[[], Any]]:
    share = broker.put({"other": np.zeros(3, "u1"), "one": VALUES}, "tree", replace=True)
    return broker.views(share)[1], lambda: np.array(broker.get(share)["one"])


PRODUCERS: dict[str, Producer] = {
    "ndarray": lambda _: same(constant()),
    "view of an ndarray": lambda _: same(constant().view()),
    "broadcast": lambda _: same(np.broadcast_to(np.float32(7), (COUNT,))),
    "bytes": lambda _: same(VALUES.tobytes()),
    "memoryview": lambda _: same(memoryview(VALUES.tobytes()).cast("f")),
    "mapped file": lambda _: same(mapped()),
    "jax": lambda _: same(jnp.arange(COUNT, dtype="float32")),
    "tensorflow": lambda _: same(tf.range(COUNT, dtype="float32")),
    "pyarrow": lambda _: same(pyarrow.array(VALUES)),
    "share": lambda broker: shared(broker, lambda share: share),
    "share's view": lambda broker: shared(broker, lambda share: share.view()),
    "share of a tree": of_a_tree,
    "array of share's view": lambda broker: shared(broker, lambda share: np.asarray(share.view())),
    "got by numpy": lambda broker: shared(broker, broker.get),
    "part of what numpy got": lambda broker: shared(broker, lambda share: broker.get(share)[16:48]),
    "got by jax": lambda broker: shared(broker, lambda share: broker.get(share, "jax")),
    "got by tensorflow": lambda broker: shared(broker, lambda share: broker.get(share, "tensorflow")),
}


def by_the_table(view: View) -> Any:
    """As a consumer of DLPack's C table takes it."""
    table = (ctypes.c_void_p * 7).from_address(View.__c_dlpack_exchange_api__)
    take = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))(table[3])
    tensor = ctypes.c_void_p()
    assert take(view, ctypes.byref(tensor)) == 0
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return torch.from_dlpack(make(tensor, b"dltensor_versioned", None))


def promised(view: View) -> View:
    return view.for_immutable_consumer() if view.compact else view


def refused_or(route: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A route that may say no, in words."""

    def ask(array: Any) -> Any:
        try:
            return route(array)
        except (ZeroCopyUnavailable, arraybridge.MemoryConversionError):
            return None

    return ask


def consumers(broker: arraybridge.Broker) -> dict[str, Callable[[Any], Any]]:
    into_tensorflow = tf.experimental.dlpack.from_dlpack
    routes: dict[str, Callable[[Any], Any]] = {
        "numpy": lambda array: np.from_dlpack(asdlpack(array)),
        "numpy, copy": lambda array: np.from_dlpack(asdlpack(array), copy=True),
        "torch": lambda array: torch.from_dlpack(asdlpack(array)),
        "torch, a copy": lambda array: torch.from_dlpack(asdlpack(array, copy=True)),
        "torch, copy": lambda array: torch.from_dlpack(asdlpack(array), copy=True),
        "torch, no copy": refused_or(lambda array: torch.from_dlpack(asdlpack(array), copy=False)),
        "torch, old capsule": lambda array: torch.from_dlpack(asdlpack(array).__dlpack__()),
        "torch, new capsule": lambda array: torch.from_dlpack(asdlpack(array).__dlpack__(max_version=(1, 0))),
        "torch, the C table": lambda array: by_the_table(asdlpack(array)),
        "jax": lambda array: jnp.from_dlpack(asdlpack(array)),
        "jax, promised": lambda array: jnp.from_dlpack(promised(asdlpack(array))),
        "tensorflow": lambda array: into_tensorflow(asdlpack(array).__dlpack__()),
        "tensorflow, promised": lambda array: into_tensorflow(promised(asdlpack(array)).__dlpack__()),
    }
    for name in ("dlpack", "buffer", "array_interface_v3"):
        by_one = getattr(arraybridge.dlpack, f"asdlpack_{name}")
        routes[f"torch, {name} alone"] = refused_or(lambda array, by_one=by_one: torch.from_dlpack(by_one(array)))
    for copy in (None, True, False):
        for target in FRAMEWORKS:
            routes[f"convert to {target}, copy={copy}"] = refused_or(
                lambda array, target=target, copy=copy: broker.convert(array, target, copy=copy)
            )
            routes[f"convert_memory to {target}, copy={copy}"] = refused_or(
                lambda array, target=target, copy=copy: convert_memory(array, None, target, None, copy=copy)
            )
    return routes


def write(made: Any) -> None:
    if isinstance(made, torch.Tensor):
        made.fill_(99)
        made.numpy()[0] = 98
    elif isinstance(made, np.ndarray) and made.flags.writeable:
        made[...] = 99


def values_of(made: Any) -> Any:
    return made.numpy() if isinstance(made, torch.Tensor) else np.asarray(made)


def kept(broker: arraybridge.Broker, produce: Producer, consume: Callable[[Any], Any]) -> str:
    array, now = produce(broker)
    before = now().tobytes()
    beside = jnp.from_dlpack(asdlpack(array))  # another consumer of the same memory
    its_values = np.array(beside).tobytes()
    made = consume(array)
    if made is not None and values_of(made).tobytes() != its_values:
        return "other values came out"
    write(made)
    if now().tobytes() != before:
        return "the write reached the array"
    return "kept" if np.array(beside).tobytes() == its_values else "the write reached another consumer"


def main() -> None:
    first = int(sys.argv[2])
    jax.config.update("jax_platforms", "cpu")
    broker = arraybridge.Broker(sys.argv[1], namespace=f"writes-{first}", start="never")
    cases = [(one, other) for one in PRODUCERS for other in consumers(broker)]
    for number, (one, other) in enumerate(cases):
        if number < first:
            continue
        print(f"{one} to {other}", end="\t", flush=True)
        try:
            found = kept(broker, PRODUCERS[one], consumers(broker)[other])
        except Exception as error:
            found = f"{type(error).__name__}: {error}"[:300].replace("\n", " ")
            traceback.print_exc()
        print(found, flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    main()
