# SPDX-License-Identifier: Apache-2.0
"""Converts every pair on the simulated GPU with fakes of the frameworks: ``matrix_gpu_program.py ADDRESS``.

Prints JSON: {source: {target: {"cuda": way, "cpu": way}}}, where a way is the letter of the documented matrix that it
turned out to be, or what was wrong. In the second half, "cpu", the result is asked for on the host.
"""

import json
import sys
import warnings
from typing import Any

import numpy as np
from fakes import frameworks, gpu

import arraybridge
from arraybridge.errors import DeviceUnavailable

SHAPES = [(2, 3), (6,), (2, 3, 4)]
DTYPES = ["float32", "int32", "uint8"]
LETTERS = {"identity": "I", "hand_over": "H", "h2d": "U", "d2h": "D"}


def letter(plan: arraybridge.Plan) -> str:
    return LETTERS.get(plan.route) or LETTERS.get(plan.via or "", "P")


def address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.address


def way(broker: arraybridge.Broker, source: Any, values: np.ndarray[Any, Any], target: str, device: Any) -> str:
    try:
        got, plan = broker.convert(source, target, device=device, explain=True)
    except DeviceUnavailable:
        return "X"
    if not isinstance(got, np.ndarray if target == "numpy" else frameworks.ARRAYS[target]):
        return f"a {type(got)}"
    found = got if target == "numpy" else got.values()
    if found.shape != values.shape or found.dtype != values.dtype or (found != values).any():
        return f"other values: {found}"
    on_gpu = target != "numpy" and got.on_gpu
    if on_gpu != (plan.device == "cuda:0"):
        return f"on the GPU: {on_gpu}, {plan}"
    if (address(got) == address(source)) != plan.zero_copy:
        return f"shared: {not plan.zero_copy}, {plan}"
    return letter(plan)


def cell(broker: arraybridge.Broker, source: str, target: str, device: Any) -> str:
    ways = set()
    for shape in SHAPES:
        for dtype in DTYPES:
            values = (np.arange(np.prod(shape)) + 1).astype(dtype).reshape(shape)
            array = values if source == "numpy" else frameworks.ARRAYS[source].of(values)
            ways.add(way(broker, array, values, target, device))
    return " and ".join(sorted(ways))


def main() -> None:
    warnings.simplefilter("ignore")
    gpu.start()
    frameworks.install()
    names = ["numpy", *frameworks.ARRAYS]
    with arraybridge.Broker(sys.argv[1], namespace="matrix", start="never") as broker:
        report = {
            source: {
                target: {
                    "cuda": cell(broker, source, target, None if target == "numpy" else 0),
                    "cpu": cell(broker, source, target, "cpu"),
                }
                for target in names
            }
            for source in names
        }
    print(json.dumps(report))


main()
