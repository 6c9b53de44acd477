# SPDX-License-Identifier: Apache-2.0
"""Checks the files of deploy/container as far as possible without an engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from container import DAEMON, ROOT

DEPLOY = ROOT / "deploy/container"
CTL = Path(os.environ.get("ARRAYBRIDGE_CTL", DAEMON.parents[1] / "client/ctl/arraybridgectl"))


@pytest.fixture
def compose() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_the_services_share_only_the_sockets(compose: Any) -> None:
    services = compose["services"]
    assert set(services) == {"broker", "producer", "consumer"}
    for service in services.values():
        assert service["volumes"] == ["sockets:/run/arraybridge"]
        assert not {"pid", "ipc", "network_mode", "privileged", "cap_add", "devices"} & set(service)
        assert service["user"] == services["broker"]["user"]
    assert list(compose["volumes"]) == ["sockets"]


def test_the_cdi_file_mounts_the_directory_and_sets_its_address() -> None:
    cdi = json.loads((DEPLOY / "cdi/arraybridge.json").read_text())
    assert re.fullmatch(r"[a-z0-9.-]+\.[a-z]+/[a-z]+", cdi["kind"])
    (device,) = cdi["devices"]
    (mount,) = device["containerEdits"]["mounts"]
    assert device["containerEdits"]["env"] == [f"ARRAYBRIDGE_ADDRESS={mount['containerPath']}"]
    assert not mount["hostPath"].endswith(".sock")


def test_the_cdi_file_is_the_tools_output() -> None:
    made = json.loads(subprocess.run([CTL, "-H", "/run/arraybridge", "cdi", "generate"], capture_output=True).stdout)
    assert made == json.loads((DEPLOY / "cdi/arraybridge.json").read_text())
    elsewhere = subprocess.run([CTL, "-H", "unix:///srv/a b/broker.sock", "cdi", "generate"], capture_output=True).stdout
    (mount,) = json.loads(elsewhere)["devices"][0]["containerEdits"]["mounts"]
    assert (mount["hostPath"], mount["containerPath"]) == ("/srv/a b", "/run/arraybridge")


def words_of_the_image() -> list[str]:
    text = (DEPLOY / "Containerfile").read_text()
    words = [json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE)]
    return [word for part in words for word in part]


def test_the_daemon_accepts_the_images_settings() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    program, *flags = words_of_the_image()
    assert program == "arraybridged"
    checked = subprocess.run([DAEMON, *flags, "--check-config"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    lists = ("daemon/CMakeLists.txt", "client/ctl/CMakeLists.txt", "deploy/cmake/ArraybridgeNotices.cmake")
    cmake = "".join((ROOT / each).read_text() for each in lists)
    for component in re.findall(r"--component (\w+)", text):
        assert f"COMPONENT {component})" in cmake


def test_image_and_composition_publish_no_port() -> None:
    printed = subprocess.run([DAEMON, *words_of_the_image()[1:], "--print-config"], capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    (listen,) = re.findall(r'^listen = "(?!unix:)(.*?)"', printed.stdout, re.MULTILINE)
    assert listen.startswith("127.") or listen == "off"
    assert "\nEXPOSE" not in (DEPLOY / "Containerfile").read_text()
    assert "ports:" not in (DEPLOY / "compose.yaml").read_text()


def test_the_image_is_public_only_by_an_explicit_setting() -> None:
    """The Containerfile describes this for metrics that are scraped from outside."""
    (said,) = re.findall(r"arraybridged (--http .*)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    flags = [*words_of_the_image()[1:], *said.split()]
    assert subprocess.run([DAEMON, *flags, "--check-config"], capture_output=True).returncode == 0
    flags.remove("--http-public")
    refused = subprocess.run([DAEMON, *flags, "--check-config"], capture_output=True, text=True)
    assert (refused.returncode, "--http-public" in refused.stderr) == (2, True)
