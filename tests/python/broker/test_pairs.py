# SPDX-License-Identifier: Apache-2.0
"""put in a process of one framework, get in a process of another: all pairs of what is installed, every dtype, zero-copy."""

import importlib.util
import json
from functools import partial
from pathlib import Path

import pytest
from processes import FRAMEWORKS, run_client, run_together

CLIENT = Path(__file__).with_name("pair_client.py").read_text()
INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
# What they bring along by themselves.
BRINGS = {"numpy": set(), "torch": {"numpy"}, "tensorflow": {"numpy", "jax"}, "jax": {"numpy"}}


@pytest.fixture(scope="module")
def reports(address):
    """Each framework's put process, then each framework's get process; what they printed."""
    return {verb: reports_of(verb, address) for verb in ("put", "get")}


def reports_of(verb, address):
    sources = ",".join(INSTALLED)
    done = run_together({name: partial(run_client, CLIENT, verb, name, address, sources) for name in INSTALLED})
    return {name: json.loads(report.result()) for name, report in done.items()}


@pytest.mark.parametrize("target", INSTALLED)
@pytest.mark.parametrize("source", INSTALLED)
def test_pair(reports, source, target):
    assert reports["get"][target][source] == []


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("verb", ["put", "get"])
def test_a_process_loads_only_its_own_framework(reports, verb, name):
    assert set(reports[verb][name]["imported"]) - BRINGS[name] - {name} == set()
