# SPDX-License-Identifier: Apache-2.0
"""Starts four workers of uvicorn and the one process with the model, asks them, and publishes a new version meanwhile."""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model import network

here = Path(__file__).parent


def publish(seed: int) -> int:
    command = [sys.executable, "publish.py", str(seed)]
    return int(subprocess.run(command, cwd=here, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def right_scores(seed: int, inputs: np.ndarray[Any, Any]) -> torch.Tensor:
    torch.manual_seed(seed)
    with torch.no_grad():
        return network()(torch.from_numpy(inputs))


inputs = np.random.default_rng(0).random((64, 512), "float32")
seeds = {publish(1): 1}
right = {1: right_scores(1, inputs), 2: right_scores(2, inputs)}
model = subprocess.Popen([sys.executable, "predict.py"], cwd=here)
workers = ["uvicorn", "web:app", "--workers", "4", "--port", "0", "--lifespan", "off", "--no-access-log"]
web = subprocess.Popen([sys.executable, "-m", *workers], cwd=here, stderr=subprocess.PIPE, text=True)
assert web.stderr is not None
address = next(found[0] for line in web.stderr if (found := re.search(r"http://\S+", line)))


def ask(number: int) -> int:
    """The generation whose scores the answer has."""
    with urllib.request.urlopen(address, inputs[number].tobytes(), timeout=120) as response:
        answer = json.load(response)
    seed = seeds.get(answer["generation"], 2)
    assert np.allclose(answer["scores"], right[seed][number], rtol=1e-4, atol=1e-5), "an answer of no version"
    return int(answer["generation"])


def answers() -> bool:
    try:
        return bool(ask(0))
    except urllib.error.URLError:
        return False


try:
    while not answers():
        assert web.poll() is None and model.poll() is None, "a process has ended"
        time.sleep(0.1)  # until the workers listen
    with ThreadPoolExecutor(16) as threads:
        generations = list(threads.map(ask, range(64)))
        newest = publish(2)
        while generations[-1] != newest:  # they are asked on, until the new version answers
            generations += threads.map(ask, range(64))
finally:
    for process in (web, model):
        process.terminate()
        process.wait()
print(f"{len(generations)} right answers of generations {sorted(set(generations))}, by 4 workers and one copy of the weights")
