# SPDX-License-Identifier: Apache-2.0
"""Checks the files of deploy/k8s without a cluster: names, users and paths match the image and the daemon, and a daemon and
a client that run as these users can connect in such a directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from container import DAEMON, ROOT
from test_deploy import CTL

yaml = pytest.importorskip("yaml")
DEPLOY = ROOT / "deploy/k8s"
CONTAINERFILE = (ROOT / "deploy/container/Containerfile").read_text()
STAGES = list(yaml.safe_load_all((DEPLOY / "stages.yaml").read_text()))
RAY = yaml.safe_load((DEPLOY / "ray.yaml").read_text())
RAY_PODS = [group["template"]["spec"] for group in (RAY["spec"]["headGroupSpec"], *RAY["spec"]["workerGroupSpecs"])]
HOST = {"hostPID", "hostIPC", "hostNetwork", "hostUsers", "shareProcessNamespace"}
NOBODY_ELSE = 61003


def document(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "base" / name).read_text())


@pytest.fixture
def broker() -> Any:
    """The pod of the DaemonSet."""
    return document("daemonset.yaml")["spec"]["template"]["spec"]


def configuration() -> str:
    return str(document("configuration.yaml")["data"]["arraybridged.toml"])


def directory_of(pod: Any) -> str:
    """The directory on the node, which the pod's containers mount at the same path."""
    (volume,) = (each for each in pod["volumes"] if "hostPath" in each)
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        assert volume["hostPath"]["path"] in [each["mountPath"] for each in container["volumeMounts"] if each["name"] == volume["name"]]
    return str(volume["hostPath"]["path"])


def test_broker_and_stages_share_one_directory_and_no_namespace_of_the_host(broker: Any) -> None:
    pods = [broker, *(stage["spec"] for stage in STAGES), *RAY_PODS]
    assert {directory_of(pod) for pod in pods} == set(re.findall(r"^VOLUME (.*)$", CONTAINERFILE, re.MULTILINE))
    for pod in pods:
        assert not HOST & set(pod)
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
            assert "privileged" not in container["securityContext"]
    for pod in pods[1:]:
        assert pod["containers"][0]["env"] == [{"name": "ARRAYBRIDGE_ADDRESS", "value": directory_of(broker)}]


def test_the_users_are_the_images(broker: Any) -> None:
    (uid,), (gid,) = (re.findall(rf"{flag} (\d+)", CONTAINERFILE) for flag in ("--uid", "--gid"))
    (container,) = broker["containers"]
    assert (container["securityContext"]["runAsUser"], container["securityContext"]["runAsGroup"]) == (int(uid), int(gid))
    (first,) = broker["initContainers"]
    assert first["command"] == ["install", "-d", "-o", uid, "-g", gid, "-m", "0751", directory_of(broker)]
    for pods in [stage["spec"] for stage in STAGES], RAY_PODS:
        assert [pod["securityContext"]["supplementalGroups"] for pod in pods] == [[int(gid)]] * len(pods)
        assert len({pod["securityContext"]["runAsUser"] for pod in pods}) == 1


def test_the_daemon_accepts_the_pods_settings(broker: Any, tmp_path: Path) -> None:
    (container,) = broker["containers"]
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    program, *flags = json.loads(entry)
    file = tmp_path / "arraybridged.toml"
    file.write_text(configuration())
    (mount,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "configuration")
    words = [word.replace(f"{mount}/{file.name}", str(file)) for word in container["args"]]
    assert str(file) in words and program == "arraybridged"
    printed = subprocess.run([DAEMON, *flags, *words, "--print-config"], capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    (port,) = container["ports"]
    assert f'listen = "0.0.0.0:{port["containerPort"]}"' in printed.stdout
    (drain,) = re.findall(r'^drain_timeout = "(\d+)s"', printed.stdout, re.MULTILINE)
    assert broker["terminationGracePeriodSeconds"] > int(drain)


def test_kubernetes_knows_every_field() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    checked = [document(f"{name}.yaml") for name in ("namespace", "configuration", "daemonset")] + STAGES
    checked += [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, "spec": pod} for pod in RAY_PODS]
    for each in checked:
        validate.validate(each, "1.37", strict=True)
    with pytest.raises(validate.ValidationError):
        validate.validate({**STAGES[0], "spec": {**STAGES[0]["spec"], "hostpid": True}}, "1.37", strict=True)


def test_the_ray_cluster_is_of_the_supported_version() -> None:
    """Of KubeRay's own fields; nothing here has its schema."""
    assert (RAY["apiVersion"], RAY["kind"]) == ("ray.io/v1", "RayCluster")
    assert set(RAY["spec"]) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert f"ray=={RAY['spec']['rayVersion']}\n" in (ROOT / "deploy/requirements/clusters.txt").read_text()
    for group in RAY["spec"]["headGroupSpec"], *RAY["spec"]["workerGroupSpecs"]:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for pod in RAY_PODS:
        assert pod["containers"][0]["image"].startswith(f"rayproject/ray:{RAY['spec']['rayVersion']}")
    for group in RAY["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] and group["groupName"]


def test_its_probe_is_that_of_the_image(broker: Any) -> None:
    (check,) = re.findall(r"^HEALTHCHECK CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    assert broker["containers"][0]["readinessProbe"]["exec"]["command"] == json.loads(check)


@pytest.mark.parametrize("folder", ["base", "gpu"])
def test_kustomize_can_build_it(folder: str) -> None:
    kubectl = shutil.which("kubectl") or pytest.skip("kubectl is not installed")
    made = subprocess.run([kubectl, "kustomize", str(DEPLOY / folder)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    objects = {each["kind"]: each for each in yaml.safe_load_all(made.stdout)}
    assert set(objects) == {"Namespace", "ConfigMap", "DaemonSet"}
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    (version,) = re.findall(r"project\(arraybridge VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert {each["image"] for each in (*pod["initContainers"], *pod["containers"])} == {f"arraybridged:{version}"}
    assert pod.get("runtimeClassName") == ("nvidia" if folder == "gpu" else None)
    assert ("env" in pod["containers"][0]) == (folder == "gpu")


@pytest.fixture
def node() -> Iterator[Path]:
    """A folder that all users may enter, with both programs and the configuration of the pod."""
    folder = Path(tempfile.mkdtemp(prefix="arraybridge-node-"))
    folder.chmod(0o755)
    for program in (DAEMON, CTL):
        shutil.copy(program, folder)
    (folder / "arraybridged.toml").write_text(configuration())
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run processes of other users")
def test_a_daemon_and_clients_of_these_users_can_connect(broker: Any, node: Path) -> None:
    """Does as the pods do: the first container's command makes the directory; the stage mounts it read-only."""
    run = node / "run"
    command = broker["initContainers"][0]["command"]
    subprocess.run([*command[:-1], run], check=True)
    rights = broker["containers"][0]["securityContext"]
    become = ["setpriv", f"--reuid={rights['runAsUser']}", f"--regid={rights['runAsGroup']}", "--clear-groups", "--no-new-privs"]
    read, write = os.pipe()
    flags = ["--directory", run, "--config", node / "arraybridged.toml", "--http", "127.0.0.1:0", "--ready-fd", str(write)]
    daemon = subprocess.Popen([*become, node / DAEMON.name, *flags], pass_fds=[write], stderr=subprocess.PIPE, text=True)
    os.close(write)
    with os.fdopen(read) as lines:
        ready = lines.readline()
    try:
        assert ready == "ready\n"
        stage = STAGES[0]["spec"]["securityContext"]
        (group,) = stage["supplementalGroups"]
        for user, groups, code in [(stage["runAsUser"], f"--groups={group}", 0), (NOBODY_ELSE, "--clear-groups", 4)]:
            script = f'mount --bind -o ro {run} {run} && exec setpriv --reuid={user} --regid={user} {groups} "$@"'
            words = ["unshare", "--mount", "sh", "-ec", script, "sh", node / CTL.name, "-H", run, "ping"]
            ping = subprocess.run(words, capture_output=True, text=True)
            assert ping.returncode == code, ping.stderr
    finally:
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0, daemon.communicate()
