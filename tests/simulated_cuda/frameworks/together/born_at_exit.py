# SPDX-License-Identifier: Apache-2.0
"""A program that ends with arrays alive which were born in broker memory: ``born_at_exit.py ADDRESS PACKAGE``."""

import sys

from born_commands import GPU, count_of, expected
from real_packages import package

import arraybridge

of = sys.argv[2]
broker = arraybridge.Broker(sys.argv[1], start="never")
if of != "numba":
    package(of)
with broker.born(of, device=GPU) as born:  # type: ignore[arg-type]
    published = package(of).made(expected("5", count_of(of)), 0)
    broker.put(published, f"at-exit-{of}")
    own = package(of).made(expected("6", count_of(of)), 0)
assert born.arrays == 2
cycle = [own]
cycle.append(cycle)
print("born")
