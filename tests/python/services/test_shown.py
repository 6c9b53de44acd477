# SPDX-License-Identifier: Apache-2.0
"""What arraybridgectl shows of a service: servers publish how long their answers took."""

import os
import time

import numpy as np
import pytest
from native import shown

import arraybridge


def figures_of(server):
    return {key: server[key] for key in ("requests", "failed", "p50_us", "p99_us")}


def test_a_service_and_its_servers(address, broker, serve):
    servers = [serve("double"), serve("double")]
    before = time.monotonic()
    for number in range(50):
        broker.call("double", {"n": number, "x": np.ones(3)}, timeout=60)
    longest_us = 1e6 * (time.monotonic() - before)
    service = shown(address, broker, "show", "double")
    assert {each["process_id"] for each in service["server"]} == {server.pid for server in servers}
    assert [each["process_id"] for each in service["caller"]] == [os.getpid()]
    told = [figures_of(each) for each in service["server"] if "requests" in each]
    assert told
    for each in told:
        assert 1 <= each["requests"] <= 50 and each["failed"] == 0
        assert 0 < each["p50_us"] <= each["p99_us"] <= longest_us
    assert shown(address, broker, "ls")["services"][0]["service"] == "double"


def test_the_latency_contains_the_wait_for_a_server(address, broker):
    """It is that of the caller: from the call to the answer."""
    future = broker.submit("double", {"n": 1, "x": np.ones(3)}, timeout=60)
    time.sleep(0.3)
    with broker.service("double") as service:
        service.receive(timeout=60).fail("not this one")
        with pytest.raises(arraybridge.RequestFailed):
            future.result(60)
        told = shown(address, broker, "show", "double")["server"][0]
        assert figures_of(told) | {"p50_us": 0, "p99_us": 0} == {"requests": 1, "failed": 1, "p50_us": 0, "p99_us": 0}
        assert told["p50_us"] >= 300_000
    assert not [each for each in broker.list() if each.share.name.startswith("service/")]


def test_a_server_that_may_publish_no_shares_serves(broker, monkeypatch):
    monkeypatch.setattr(type(broker), "put", lambda *_, **__: (_ for _ in ()).throw(arraybridge.OutOfMemory("full")))
    with broker.service("double") as service:
        future = broker.submit("double", {"n": 1, "x": np.ones(3)}, timeout=60)
        service.receive(timeout=60).reply({"n": 2})
        assert future.result(60)["n"] == 2
