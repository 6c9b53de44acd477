# SPDX-License-Identifier: Apache-2.0
"""A trainer publishes one version of a model after another; servers swap to the newest without a stop.

    python docs/examples/follow-trainer/follow_trainer.py --versions 12

A process trains a network with torch and publishes it as the bundle "model" after each step. Four servers follow: their
tensors stay, and get the next version between two answers. One is killed half way and starts again. The broker has memory
for two versions, so the trainer waits until nobody reads the one before the last. Exits with 0 only if every answer came from one whole
version, every server reached the last one, and the broker never held more than two.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import torch

from arraybridge import Broker
from arraybridge.integrations.torch import attach, publish

WIDTH = 1024
LAYERS = 6
MODEL_BYTES = LAYERS * (WIDTH + 1) * WIDTH * 4
SERVERS = 4


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def check_sum(weights: Any) -> int:
    """A number that is another one if any layer is of another version; of bits, so that it is exact."""
    return sum(int(layer.view(torch.int32).sum()) for layer in weights.values())


def train(address: str, versions: int) -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with Broker(address, start="never", timeout_s=60) as broker:
        for version in range(1, versions + 1):
            optimizer.zero_grad()
            net(torch.randn(8, WIDTH)).square().mean().backward()
            optimizer.step()
            about = {"version": version, "sum": check_sum(net.state_dict()), "last": version == versions}
            publish(net, "model", broker=broker, replace=True, metadata=json.dumps(about).encode())


def serve(address: str) -> None:
    with torch.device("meta"):
        net = network().eval()
    torch.set_num_threads(1)
    with Broker(address, start="never") as broker:
        follower = attach(net, broker.open("model", wait=60), follow=True)
        answers, version, last = 0, 0, False
        while not last:
            net(torch.ones(1, WIDTH))  # the swap to a newer version is made here, when it is prepared
            answers += 1
            with follower.reading() as bundle:
                about = json.loads(bundle.metadata)
                if about["version"] == version:
                    continue
                whole = check_sum(net.state_dict()) == about["sum"]
            version, last = about["version"], about["last"]
            swap_ms = round(follower.stats().pause_us / 1e3, 3)
            print(json.dumps({"version": version, "whole": whole, "answers": answers, "swap_ms": swap_ms}), flush=True)
        follower.close()


class Server:
    """A server process and its reports."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, __file__, "--serve", address]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.reports: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reports.append(json.loads(line))

    def end(self) -> int:
        status = self.process.wait()
        self._reader.join()
        return status


def follow(versions: int) -> list[str]:
    """Runs all of it, and returns its problems."""
    os.environ["ARRAYBRIDGED_MEMORY__HOST__CAPACITY"] = str(2 * MODEL_BYTES + (12 << 20))
    with Broker(start="private") as broker:
        trainer = subprocess.Popen([sys.executable, __file__, "--train", broker.address, "--versions", str(versions)])
        servers = [Server(broker.address) for _ in range(SERVERS)]
        peak, killed = 0, False
        while trainer.poll() is None:
            peak = max(peak, broker.stats()["charged_bytes"])
            if not killed and len(servers[0].reports) >= versions // 2:
                os.kill(servers[0].process.pid, signal.SIGKILL)
                killed = servers[0].end() == -signal.SIGKILL
                servers.append(Server(broker.address))
            time.sleep(0.01)
        if trainer.returncode != 0:  # its servers wait for a last version
            for server in servers:
                server.process.kill()
        statuses = [server.end() for server in servers[1:]]
    for number, server in enumerate(servers):
        seen = [report["version"] for report in server.reports]
        swaps = sorted(report["swap_ms"] for report in server.reports)
        answers = server.reports[-1]["answers"] if server.reports else 0
        note = ", then killed" if number == 0 else ""
        print(f"server {number}: versions {seen}, {answers} answers, swap {swaps[len(swaps) // 2] if swaps else 0} ms{note}")
    print(f"at most {peak / MODEL_BYTES:.2f} versions in the broker at a time")
    claims = {
        "the trainer failed": trainer.returncode == 0,
        "no server was killed": killed,
        "a server failed": statuses == [0] * SERVERS,
        "a version was torn": all(report["whole"] for server in servers for report in server.reports),
        "a server missed the last version": all(
            server.reports[-1:] and server.reports[-1]["version"] == versions for server in servers[1:]
        ),
        "versions went back": all(
            [report["version"] for report in server.reports] == sorted({report["version"] for report in server.reports})
            for server in servers
        ),
        "more than two versions were held": peak <= 2.1 * MODEL_BYTES,
    }
    return [problem for problem, holds in claims.items() if not holds]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", type=int, default=12, help="default: 12")
    parser.add_argument("--train", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--serve", metavar="ADDRESS", help=argparse.SUPPRESS)
    wishes = parser.parse_args()
    if wishes.train:
        train(wishes.train, wishes.versions)
    elif wishes.serve:
        serve(wishes.serve)
    else:
        problems = follow(wishes.versions)
        print(*(f"PROBLEM: {problem}" for problem in problems), sep="\n", end="\n" if problems else "ok\n")
        return 1 if problems else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
