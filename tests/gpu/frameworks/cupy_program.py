# SPDX-License-Identifier: Apache-2.0
"""A process with CuPy arrays and a Broker: ``cupy_program.py ADDRESS``; each input line is a function, each output line
an answer.
"""

import sys

import cupy
from program import serve

import arraybridge

COUNT = 1000
broker = arraybridge.Broker(sys.argv[1], start="never")


def read(name: str, start: str) -> str:
    view = broker.views(broker.list(name)[0].share)[0]
    array = cupy.asarray(view)
    assert array.data.ptr == view.address
    return "right" if bool((array == cupy.arange(float(start), float(start) + COUNT, dtype=cupy.float32)).all()) else "wrong"


def put(name: str, start: str) -> str:
    return str(broker.put(cupy.arange(float(start), float(start) + COUNT, dtype=cupy.float32), name).device)


serve(read, put)
