# SPDX-License-Identifier: Apache-2.0
"""One rank: dcp_program.py RANK RANKS FOLDER NAME COMMANDS…, with a daemon at $ARRAYBRIDGE_ADDRESS.

save:N    saves step N; async:N by dcp.async_save; die:N rank 1 is killed after it had the plan of step N
load:N    loads step N, or the latest for load:, and checks every value
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from arraybridge.dcp import BrokerStorageReader, BrokerStorageWriter

rank, ranks, folder, name, *commands = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{name}", rank=int(rank), world_size=int(ranks))
mesh = init_device_mesh("cpu", (int(ranks),))


def state(step: float) -> dict:
    weight = torch.arange(24 * 6, dtype=torch.float32).reshape(24, 6) + step
    return {
        "weight": distribute_tensor(weight, mesh, [Shard(0)]),
        "columns": distribute_tensor(weight.to(torch.bfloat16), mesh, [Shard(1)]),
        "bias": distribute_tensor(torch.full((5,), step), mesh, [Replicate()]),
        "scalar": torch.tensor(step),
        "empty": torch.empty(0, 3),
        "optimizer": {"lr": 0.1 * step, "groups": [{"step": step}]},
    }


class Deadly(BrokerStorageWriter):
    def write_data(self, plan, planner):
        os.kill(os.getpid(), signal.SIGKILL)


writer = BrokerStorageWriter("run", f"{folder}/ckpt")
reader = BrokerStorageReader("run", f"{folder}/ckpt")
for command in commands:
    verb, step = command.split(":")
    if verb == "save":
        dcp.save(state(float(step)), checkpoint_id=step, storage_writer=writer)
    elif verb == "async":
        dcp.async_save(state(float(step)), checkpoint_id=step, storage_writer=writer).result()
    elif verb == "die":
        writer = Deadly("run", f"{folder}/ckpt") if rank == "1" else writer
        dcp.save(state(float(step)), checkpoint_id=step, storage_writer=writer)
    elif verb == "flush":
        writer.flush()
    else:
        found = state(-1000.0)
        dcp.load(found, checkpoint_id=step or None, storage_reader=reader)
        number = float(reader.step)
        for key, wanted in state(number).items():
            if isinstance(wanted, torch.Tensor):
                mine, its = (each.to_local() if hasattr(each, "to_local") else each for each in (found[key], wanted))
                assert torch.equal(mine, its), (key, mine, its)
        assert found["optimizer"] == {"lr": 0.1 * number, "groups": [{"step": number}]}, found["optimizer"]
        print(f"loaded {number:.0f}", flush=True)
writer.close()
os._exit(0)  # gloo's threads of a group whose other rank has gone may wait for it
