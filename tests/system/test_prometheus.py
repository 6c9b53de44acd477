# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus on the service's host scrapes it by the shipped configuration, and answers what the dashboard asks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Client
from machine import eventually
from service import SOCKETS, UNIT, Service
from test_service import NPY

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "deploy/prometheus"
EVERY_SECOND = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
FETCH = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())"


class Prometheus:
    """In the network of the machine, so it finds the daemon at the address of scrape.yml."""

    def __init__(self, service: Service, folder: Path) -> None:
        config = folder / "prometheus.yml"
        config.write_text(f"{EVERY_SECOND}rule_files: [{SHIPPED}/rules.yml]\n{(SHIPPED / 'scrape.yml').read_text()}")
        self.network = ["nsenter", f"--target={service.machine.pid}", "--net"]
        self.log = folder / "log"
        words = [f"--config.file={config}", f"--storage.tsdb.path={folder}/data", "--web.listen-address=127.0.0.1:9090"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *self.network, "prometheus", *words], stderr=log)

    def fetch(self, path: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.network, sys.executable, "-c", FETCH, f"http://127.0.0.1:9090{path}"], capture_output=True, text=True)

    def ask(self, path: str, **parameters: str) -> Any:
        answer = self.fetch(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        assert answer.returncode == 0, answer.stderr
        told = json.loads(answer.stdout)
        assert told["status"] == "success", told
        return told["data"]

    def value(self, query: str) -> float | None:
        """Of the only series; None: there is none."""
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def prometheus(service: Service, tmp_path: Path) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    running = Prometheus(service, tmp_path)
    try:
        told = lambda: running.log.read_text(errors="replace")
        eventually("Prometheus is ready", lambda: running.fetch("/-/ready").returncode == 0 or running.process.poll() is not None, told)
        assert running.process.poll() is None, told()
        yield running
    finally:
        running.end()


def test_it_scrapes_the_service_and_answers_the_dashboard(service: Service, prometheus: Prometheus, client: Callable[..., Client]) -> None:
    service.configure("[http]\nnamespaces = true\n")  # some metrics are of named channels
    service.machine.does("systemctl", "restart", UNIT)
    client().ask("open frames receive")
    service.machine.path("/srv/array.npy").write_bytes(NPY)
    for name in ("one", "two"):
        service.tool("put", "/srv/array.npy", name)
    eventually("both shares are seen", lambda: prometheus.value("sum(arraybridge_shares)") == 2, service.log)
    assert prometheus.value('up{job="arraybridge"}') == 1
    (target,) = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"], target["scrapeUrl"]) == ("up", "", "http://127.0.0.1:9464/metrics")
    assert prometheus.value('arraybridge_requests_total{verb="Publish",code="OK"}') is not None
    names = set(prometheus.ask("label/__name__/values"))
    board = json.loads((ROOT / "deploy/grafana/dashboard.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) > 15
    for query in queries:
        asked = set(re.findall(r"\b(?:arraybridge|process)_[a-z_]+\b", query))
        assert asked and asked <= names, f"no series of {asked - names}: {query}"
        prometheus.ask("query", query=query.replace("$__rate_interval", "1m").replace("$instance", ".*"))


def test_its_rules_notice_that_the_service_is_down(service: Service, prometheus: Prometheus) -> None:
    service.tool("ping")
    eventually("it is scraped", lambda: prometheus.value('up{job="arraybridge"}') == 1, service.log)
    assert {rule["name"] for rule in rules_of(prometheus)} == set(re.findall(r"alert: (\w+)", (SHIPPED / "rules.yml").read_text()))
    eventually("every rule was evaluated", lambda: all(rule["health"] == "ok" for rule in rules_of(prometheus)), service.log)
    service.machine.does("systemctl", "stop", *SOCKETS, UNIT)
    pending = 'ALERTS{alertname="ArraybridgeDown",alertstate=~"pending|firing"}'
    eventually("the alert is pending, and after a minute would fire", lambda: prometheus.value(pending) == 1)


def rules_of(prometheus: Prometheus) -> Any:
    return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
