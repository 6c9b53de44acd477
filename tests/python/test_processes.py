# SPDX-License-Identifier: Apache-2.0
"""Children: forked, spawned, from a fork server, in pools and in DataLoader workers. Each child gets its own connection."""

import importlib.util
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from processes import environment, run_together, selected

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
