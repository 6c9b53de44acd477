# SPDX-License-Identifier: Apache-2.0
"""Bundles on two simulated GPUs of arrays of OpenCL memory, with a fake of the package that has these:
``bundles_program.py ADDRESS``. No OpenCL runs here on these GPUs. tests/simulated_cuda/frameworks has the bundles of all others.
"""

import sys

import numpy as np
from fakes import frameworks, gpu, own_copies

from arraybridge import Broker, _core

VALUES = np.arange(12, dtype="f4").reshape(3, 4)


def arrays_are_copied_where_the_bundle_lies(broker: Broker) -> None:
    sys.modules["pyclesperanto_prototype"] = frameworks.LikePrototype()
    arrays = {"host": VALUES, "opencl": frameworks.OCLArray(VALUES)}
    for number in (0, 1):
        broker.bundle("mixed", arrays, device=number, replace=True).fill().publish()
        bundle = broker.open("mixed")
        assert bundle.share.device == (2, number) and sorted(bundle) == sorted(arrays)
        assert all((array == VALUES).all() for array in bundle.numpy().values())
    broker.bundle("host", arrays, device="cpu").fill().publish()
    assert all((array == VALUES).all() for array in broker.open("host").numpy().values())


gpu.start()
frameworks.install()
own_copies.install(gpus=len(_core.gpus()))
with Broker(sys.argv[1], start="never") as made:
    arrays_are_copied_where_the_bundle_lies(made)
print("done")
