"""put in a process of one framework, get in a process of another: all sixteen pairs, every dtype, zero-copy."""

import importlib.util
import json
from pathlib import Path

import pytest
from conftest import FRAMEWORKS, run_client

CLIENT = Path(__file__).with_name("pair_client.py").read_text()
INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
# What they bring along by themselves.
BRINGS = {"numpy": set(), "torch": {"numpy"}, "tensorflow": {"numpy", "jax"}, "jax": {"numpy"}}


@pytest.fixture(scope="module")
def reports(address):
    """Each framework's put process, then each framework's get process; what they printed."""
    if missing := set(FRAMEWORKS) - set(INSTALLED):
        pytest.skip(f"not installed: {sorted(missing)}")
    put = {name: json.loads(run_client(CLIENT, "put", name, address)) for name in FRAMEWORKS}
    get = {name: json.loads(run_client(CLIENT, "get", name, address)) for name in FRAMEWORKS}
    return {"put": put, "get": get}


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_pair(reports, source, target):
    assert reports["get"][target][source] == []


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("verb", ["put", "get"])
def test_a_process_loads_only_its_own_framework(reports, verb, name):
    assert set(reports[verb][name]["imported"]) - BRINGS[name] - {name} == set()
