# SPDX-License-Identifier: Apache-2.0
"""Compiled code of a module that follows enters its gate, also if the process has compiled a module that is alike and has no hooks."""

from __future__ import annotations

import time

import pytest
from processes import Client

torch = pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = """
import sys, threading
import torch
from arraybridge import Broker
from arraybridge.integrations.torch import attach, publish

def net(value):
    made = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).eval().requires_grad_(False)
    for layer in made:
        layer.weight.fill_(value / 8)
        layer.bias.zero_()
    return made

given = torch.ones(1, 8)
broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
publish(net(1), "net", broker=broker)
with torch.device("meta"):
    model = net(0)

def other():
    assert (torch.compile(net(5), backend="eager")(given) == 25).all()

def attached():
    global follower
    follower = attach(model, broker.open("net"), follow=True)

def called():
    with torch.no_grad():
        torch.compile(model, backend="eager")(given)

def counted():
    "The calls that enter the gate, of code that other threads compile."
    entered = []
    enter = follower._gate.enter
    follower._gate.enter = lambda frame=None: (entered.append(1), enter(frame))[1]
    thread = threading.Thread(target=called)
    thread.start()
    thread.join()
    assert len(entered) == 1, entered

with torch.no_grad():
    for step in sys.argv[3].split():
        assert step != "attached" or ("torch._dynamo" in sys.modules) == (sys.argv[3] != "attached other counted")
        globals()[step]()
print("ok")
"""


@pytest.mark.parametrize("order", ["attached other counted", "other attached counted", "other attached other counted"])
def test_it_enters(client: Client, order: str) -> None:
    assert client(PROGRAM, f"alike-{time.time_ns()}", order).endswith("ok\n")
