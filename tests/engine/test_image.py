# SPDX-License-Identifier: Apache-2.0
"""The image of the broker in a real engine: what it has, what it may, and that it outlives its daemon."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from broker import ADDRESS, Broker
from engine import Engine


def test_a_second_container_puts_and_a_third_gets_after_a_kill(start: Callable[..., Broker], tmp_path: Path) -> None:
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    arrays.chmod(0o777)
    np.save(arrays / "in.npy", np.arange(1000.0))
    shared = (f"--volume={arrays}:/arrays",)
    broker = start()
    broker.tool("put", "/arrays/in.npy", "kept", flags=shared)
    for _ in range(2):
        broker.kill_daemon()
        assert "kept" in broker.tool("ls")
    broker.tool("dump", "kept", "-f", "/arrays/out.npy", flags=shared)
    assert (arrays / "out.npy").read_bytes() == (arrays / "in.npy").read_bytes()
    assert json.loads(broker.tool("-o", "json", "info"))["life"]["number"] == "3"


def test_it_needs_no_right_and_no_network(start: Callable[..., Broker]) -> None:
    broker = start()
    assert broker.execute("id", "-u").strip() == "1000"
    assert broker.execute("sh", "-c", "touch /made /etc/made /usr/made 2>&1 | grep -c 'Read-only file system'").strip() == "3"
    status = broker.execute("cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000\n" in status and "NoNewPrivs:\t1\n" in status
    interfaces = [line.split(":")[0].strip() for line in broker.execute("cat", "/proc/net/dev").splitlines()[2:]]
    assert interfaces == ["lo"]


def test_it_serves_half_of_the_containers_memory(start: Callable[..., Broker]) -> None:
    devices = json.loads(start().tool("-o", "json", "info"))["devices"]
    assert [int(device["capacity_bytes"]) for device in devices] == [256 << 20]


def test_its_health_check_asks_the_broker(engine: Engine, start: Callable[..., Broker]) -> None:
    """Engines start it by timers of systemd, and on demand."""
    broker = start()
    assert "arraybridgectl" in engine.do("inspect", "--format", "{{json .Config.Healthcheck}}", broker.container)
    if Path(engine.words[0]).name != "podman":
        pytest.skip("only podman runs a health check on demand")
    engine.do("healthcheck", "run", broker.container)
    broker.execute("sh", "-c", f"mv {ADDRESS}/broker.sock {ADDRESS}/moved.sock")
    assert engine.try_("healthcheck", "run", broker.container).returncode != 0
    broker.execute("sh", "-c", f"mv {ADDRESS}/moved.sock {ADDRESS}/broker.sock")


def test_it_has_the_notices_of_all_that_is_linked(start: Callable[..., Broker]) -> None:
    broker = start()
    notices = broker.execute("cat", "/usr/share/doc/arraybridge/THIRD_PARTY_NOTICES")
    assert len(notices) > 10_000 and "found no notice" not in notices
    assert json.loads(broker.execute("cat", "/usr/share/doc/arraybridge/arraybridge.cdx.json"))["bomFormat"] == "CycloneDX"
