# SPDX-License-Identifier: Apache-2.0
"""A camera of NumPy and two networks of PyTorch as Ray actors: the frames lie in the broker of the node, once."""

import os
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # of the cluster that is made here
import ray

import arraybridge.integrations.ray as abr


@ray.remote(num_cpus=0)
class Camera:
    def frame(self, number: int) -> Any:
        frame = abr.empty((480, 640), "uint8")  # born in broker memory: put copies nothing
        frame[...] = number
        return abr.put(frame)


@ray.remote(num_cpus=0)
class Network:
    def run(self, frame: Any) -> float:
        return float(frame.get("torch", access="shared").float().mean())


ray.init(num_cpus=2, include_dashboard=False)
camera, networks = Camera.remote(), [Network.remote() for _ in range(2)]
for number in range(5):
    frame = camera.frame.remote(number)  # Ray counts it, as an ObjectRef
    print(number, ray.get([network.run.remote(frame) for network in networks]), flush=True)
ray.shutdown()
