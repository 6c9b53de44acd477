# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard queries metrics and labels that a daemon serves, in valid PromQL."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign_client import ROOT, Session
from test_http import named, read

__all__ = ["named"]

GRAFANA = ROOT / "deploy/grafana"
OF_THE_SCRAPE = {"instance", "job"}
METRIC = re.compile(r"\b((?:arraybridge|process)_[a-z_]+)\b(?:\{([^}]*)\})?")


@pytest.fixture(scope="module")
def board() -> Any:
    return json.loads((GRAFANA / "dashboard.json").read_text())


def queries(board: Any) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_it_queries_existing_metrics(board: Any, named: Any, open_session: Callable[..., Session]) -> None:
    session = open_session(named)
    session.publish("one", bytes(1000))
    session.call("OpenChannel", namespace="default", name="frames", role="RECEIVER")
    page = read(named, "/metrics")
    labels: dict[str, set[str]] = {}
    for name, inside in re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    asked = queries(board)
    assert len(asked) > 15
    for query in asked:
        found = METRIC.findall(query)
        assert found, query
        for name, inside in found:
            assert name in labels, f"{name} is not served: {query}"
            known = labels[name] | OF_THE_SCRAPE
            assert set(re.findall(r"(\w+)[=!]~?=?\"", inside)) <= known, query
            grouped = {each.strip() for group in re.findall(r"by \(([^)]*)\)", query) for each in group.split(",")}
            assert grouped <= known, query
    for panel in board["panels"]:
        for target in panel["targets"]:
            (names, *_) = [{name for name, _ in METRIC.findall(target["expr"])}]
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown <= set().union(*(labels[name] for name in names)), panel["title"]


def test_prometheus_accepts_every_query(board: Any, tmp_path: Path) -> None:
    promtool = shutil.which("promtool") or pytest.skip("promtool (Debian's package prometheus) is not installed")
    rules = []
    for number, query in enumerate(queries(board)):
        written = query.replace("$__rate_interval", "5m").replace("$instance", ".*")
        assert "$" not in written
        rules.append({"record": f"query:{number}", "expr": written})
    path = tmp_path / "rules.json"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_it_can_be_provisioned_anywhere(board: Any) -> None:
    assert board["uid"] == "arraybridge"
    used = {target["datasource"]["uid"] for panel in board["panels"] for target in panel["targets"]}
    assert used | {panel["datasource"]["uid"] for panel in board["panels"]} == {"${datasource}"}
    assert [variable["type"] for variable in board["templating"]["list"]] == ["datasource", "query"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in board["panels"]})
    yaml = pytest.importorskip("yaml")
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards.yaml").read_text())["providers"]
    assert provider["options"]["path"] == "/usr/share/arraybridge/grafana"
    assert f"{provider['options']['path'].removeprefix('/usr/share/')}" in (ROOT / "CMakeLists.txt").read_text()
