# SPDX-License-Identifier: Apache-2.0
"""A process with JAX arrays on the GPU and a Broker: ``jax_program.py ADDRESS``; each input line is a function, each
output line an answer.
"""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
from program import serve

import arraybridge

COUNT = 1000
broker = arraybridge.Broker(sys.argv[1], start="never")


def expected(start: str) -> jax.Array:
    return jax.numpy.arange(float(start), float(start) + COUNT, dtype=jax.numpy.float32)


def read(name: str, start: str) -> str:
    view = broker.views(broker.list(name)[0].share, access="shared")[0]
    array = jax.dlpack.from_dlpack(view)
    assert array.unsafe_buffer_pointer() == view.address
    return "right" if bool((array == expected(start)).all()) else "wrong"


def put(name: str, start: str) -> str:
    return str(broker.put(expected(start), name).device)


serve(read, put)
