# SPDX-License-Identifier: Apache-2.0
"""Bundles on two simulated GPUs of arrays of JAX and of OpenCL memory, with fakes of these: ``bundles_program.py ADDRESS``.

tests/simulated_cuda/frameworks has the bundles of packages that run there.
"""

import sys

import numpy as np
from fakes import frameworks, gpu, own_copies
from gpu_programs import refused

import arraybridge
from arraybridge import Broker, _core

VALUES = np.arange(12, dtype="f4").reshape(3, 4)


def arrays_are_copied_where_the_bundle_lies(broker: Broker) -> None:
    sys.modules["pyclesperanto_prototype"] = frameworks.LikePrototype()
    arrays = {"jax": frameworks.JaxArray.of(VALUES), "opencl": frameworks.OCLArray(VALUES)}
    refused(lambda: broker.bundle("mixed", arrays), arraybridge.InvalidRequest, "cpu", "cuda:0", "device=")
    for number in (0, 1):
        broker.bundle("mixed", arrays, device=number, replace=True).fill().publish()
        bundle = broker.open("mixed")
        assert bundle.share.device == (2, number) and sorted(bundle) == sorted(arrays)
        for name, array in bundle.arrays("jax").items():
            assert array.held.device == (2, number) and array.address == bundle[name].address
            assert (array.values() == VALUES).all() and (bundle.numpy()[name] == VALUES).all()
    broker.bundle("host", arrays, device="cpu").fill().publish()
    assert all((array == VALUES).all() for array in broker.open("host").numpy().values())


gpu.start()
frameworks.install()
own_copies.install(gpus=len(_core.gpus()))
with Broker(sys.argv[1], start="never") as made:
    arrays_are_copied_where_the_bundle_lies(made)
print("done")
