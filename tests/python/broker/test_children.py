# SPDX-License-Identifier: Apache-2.0
"""Children: forked, spawned, from a fork server, in pools and in DataLoader workers. Each child gets its own connection, and
finds the locks of modules free."""

import importlib.util
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import environment, run_together, selected

from arraybridge.broker.fork_lock import lock_of

METHODS = ["fork", "spawn", "forkserver"]
SCRIPT = Path(__file__).with_name("children_client.py")


def children(address, *arguments):
    """Runs children_client.py as a script: a spawned child needs a main module that it can import."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), address, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("method", METHODS)
def test_children_read_by_name_and_by_reference(address, method):
    assert children(address, "process", method) == "ok\n"


@pytest.mark.parametrize("method", METHODS)
def test_shares_cross_a_pool(address, method):
    assert children(address, "pool", method) == "ok\n"


def test_a_forked_child_releases_nothing_of_its_parent(address):
    assert children(address, "fork_release") == "ok\n"


@pytest.mark.parametrize("method", METHODS)
def test_torch_data_loader_workers(loaders, method):
    if not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed")
    assert loaders[method].result() == "ok\n"


@pytest.fixture(scope="module")
def loaders(request, address):
    methods = [case["method"] for case in selected(request, "test_torch_data_loader_workers")]
    return run_together({method: partial(children, address, "data_loader", method) for method in methods})


def test_joblib(address):
    if not importlib.util.find_spec("joblib"):
        pytest.skip("joblib is not installed")
    assert children(address, "joblib") == "ok\n"


def test_a_result_may_be_a_share_of_the_worker(address):
    assert children(address, "worker_share") == "ok\n"


def test_a_child_can_take_a_lock_that_its_parent_held() -> None:
    module: dict[str, Any] = {}
    module["_lock"] = lock_of(module, threading.Lock)
    with module["_lock"] as held:
        child = os.fork()
        if child == 0:
            os._exit(0 if module["_lock"].acquire(timeout=10) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert held and module["_lock"].locked(), "the parent's is as it was"
    assert not module["_lock"].locked()
