# SPDX-License-Identifier: Apache-2.0
"""A caller of the tests with many calls at once: `many.py ADDRESS NAMESPACE SERVICE NUMBER`."""

import sys

import numpy as np

import arraybridge

address, namespace, name, number = sys.argv[1:]
broker = arraybridge.Broker(address, namespace=namespace, start="never", client="many", timeout_s=60)
futures = [broker.submit(name, {"n": n, "x": np.full(4, n)}) for n in range(int(number))]
print("asked", flush=True)
outcomes = {n: future.exception(120) for n, future in enumerate(futures)}
print("answered", *(n for n, error in outcomes.items() if error is None), flush=True)
print("failed", *(n for n, error in outcomes.items() if isinstance(error, arraybridge.RequestFailed)), flush=True)
print(*{str(error) for error in outcomes.values() if error is not None}, sep="\n", file=sys.stderr)
