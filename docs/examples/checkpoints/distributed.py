# SPDX-License-Identifier: Apache-2.0
"""One rank that trains a sharded tensor for so many steps more: torchrun --nproc-per-node N distributed.py FOLDER STEPS."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from arraybridge.dcp import BrokerStorageReader, BrokerStorageWriter


def train(directory: str, steps: int) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"weight": distribute_tensor(torch.zeros(24, 8), mesh, [Shard(0)]), "step": -1}

    reader = BrokerStorageReader("distributed", directory)
    if (found := reader.latest()) is not None:
        dcp.load(state, checkpoint_id=str(found), storage_reader=reader)
        if dist.get_rank() == 0:
            print(f"{dist.get_world_size()} ranks go on after step {found}", flush=True)

    with BrokerStorageWriter("distributed", directory) as writer:
        for step in range(state["step"] + 1, state["step"] + 1 + steps):
            state["weight"] = state["weight"] + 1
            state["step"] = step
            dcp.save(state, checkpoint_id=str(step), storage_writer=writer)

    total = state["weight"].full_tensor().sum().item()
    if dist.get_rank() == 0:
        print(f"after step {state['step']} the sum is {total:.0f}", flush=True)


dist.init_process_group("gloo")
train(sys.argv[1], int(sys.argv[2]))
dist.destroy_process_group()  # when no tensor of it is left: its threads end before the interpreter does
