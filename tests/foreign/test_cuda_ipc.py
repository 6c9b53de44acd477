# SPDX-License-Identifier: Apache-2.0
"""GPU memory at the public door: any language can open the 64 bytes in the answer. On the simulated driver."""

from __future__ import annotations

import csv
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from foreign_client import BUILD, CTL, PATIENCE_S, Daemon, Session, eventually, refused

# As in the C++ tests: $ARRAYBRIDGE_CUDA_DRIVER names another library, for example of a real card.
DRIVER = os.environ.get("ARRAYBRIDGE_CUDA_DRIVER", str(BUILD / "tests/simulated_cuda/libsimulated_cuda.so"))
CUDA_VMM, CUDA_IPC = 2, 3
HERE = {
    "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
}


@pytest.fixture
def gpu_daemon(start: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setenv("SIMULATED_CUDA", f"devices=2;dir={tmp_path};memory=67108864;ledger")
    yield start("--cuda-driver", DRIVER, "--arena-idle", "100ms")


def client(daemon: Daemon, role: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("cuda_client.py")), str(daemon.directory), DRIVER, role, name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def gpus(session: Session) -> list[Any]:
    return [device for device in session.opened.server.devices if device.device.type == 2]


def test_two_processes_share_by_a_cuda_ipc_mem_handle(gpu_daemon: Daemon, open_session: Callable[..., Session]) -> None:
    watcher = open_session(gpu_daemon)
    writer = client(gpu_daemon, "put", "tensor")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ok\n"
    for _ in range(2):
        reader = client(gpu_daemon, "get", "tensor")
        assert reader.communicate(timeout=PATIENCE_S)[0] == "ok\n"
        assert reader.returncode == 0
    watcher.call("Withdraw", namespace="default", shares=[{"name": "tensor"}])
    writer.communicate("done\n", timeout=PATIENCE_S)
    assert writer.returncode == 0
    eventually("nothing is left", lambda: watcher.call("GetStats").charged_bytes == 0)


def test_the_bytes_of_a_killed_writer_are_freed_after_its_death(gpu_daemon: Daemon, open_session: Callable[..., Session]) -> None:
    watcher = open_session(gpu_daemon)
    writer = client(gpu_daemon, "put", "tensor")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ok\n"
    writer.kill()
    writer.wait()
    reader = client(gpu_daemon, "get", "tensor")
    assert reader.communicate(timeout=PATIENCE_S)[0] == "ok\n", "the share outlives its producer"
    watcher.call("Withdraw", namespace="default", shares=[{"name": "tensor"}])
    eventually("nothing is left", lambda: watcher.call("GetStats").charged_bytes == 0)


def seen_in_quarantine(daemon: Daemon) -> tuple[float, str, bool]:
    """Bytes in the metrics; the row of the first GPU in `ls devices`; whether doctor mentions it."""
    found = [line for line in daemon.page("/metrics").splitlines() if line.startswith("arraybridge_memory_quarantined_bytes{")]
    gpu = [line for line in found if "GPU-" in line]
    command = [CTL, "-H", daemon.directory]
    listed = subprocess.run([*command, "-o", "csv", "ls", "devices"], capture_output=True, text=True, check=True).stdout
    rows = [row for row in csv.DictReader(listed.splitlines()) if "GPU-" in "".join(row.values())]
    doctor = subprocess.run([*command, "doctor"], capture_output=True, text=True, check=False).stdout
    return sum(float(line.rsplit(" ", 1)[1]) for line in gpu), rows[0]["QUARANTINED"], " of it in quarantine" in doctor


def test_memory_that_a_writer_left_open_is_in_quarantine_until_its_end(
    start: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", f"dir={tmp_path};memory=67108864;ledger")
    daemon = start("--cuda-driver", DRIVER, "--arena-idle", "100ms", "--http", "127.0.0.1:0")
    assert seen_in_quarantine(daemon) == (0, "0", False)
    writer = client(daemon, "leave", "tensor")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ok\n"
    eventually("its memory is in quarantine", lambda: seen_in_quarantine(daemon)[0] > 0)
    held, listed, told = seen_in_quarantine(daemon)
    assert (held, listed, told) == (2097152, "2097152", True)
    writer.kill()
    writer.wait()
    eventually("nothing of it is left", lambda: seen_in_quarantine(daemon) == (0, "0", False))


def test_the_server_lists_its_devices(gpu_daemon: Daemon, open_session: Callable[..., Session]) -> None:
    found = gpus(open_session(gpu_daemon))
    assert len({gpu.device.uuid for gpu in found}) == 2
    assert all(gpu.device.uuid.startswith("GPU-") for gpu in found)
    assert [list(gpu.kinds) for gpu in found] == [[CUDA_VMM, CUDA_IPC]] * 2
    assert all(0 < gpu.capacity_bytes < 67108864 for gpu in found)


@pytest.mark.parametrize(
    ("capabilities", "why"),
    [
        ({"kinds": [CUDA_IPC], **HERE, "pid_namespace": 1}, "another PID namespace"),
        ({"kinds": [CUDA_IPC], **HERE, "boot_id": "another"}, "another kernel"),
        ({"kinds": [CUDA_IPC]}, "does not state its boot id"),
        ({"kinds": [1]}, "opens memfd"),
        ({}, "opens memfd"),
    ],
)
def test_a_kind_that_cannot_work_is_refused_with_a_reason(
    gpu_daemon: Daemon, open_session: Callable[..., Session], capabilities: dict[str, Any], why: str
) -> None:
    session = open_session(gpu_daemon, capabilities=capabilities)
    with refused(grpc.StatusCode.FAILED_PRECONDITION, why):
        session.call("Allocate", namespace="default", size=1 << 20, device=gpus(session)[0].device)


def test_a_reader_of_another_kind_gets_an_error(gpu_daemon: Daemon, open_session: Callable[..., Session]) -> None:
    writer = client(gpu_daemon, "put", "tensor")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ok\n"
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "share 'tensor' is shared as cuda_ipc"):
        open_session(gpu_daemon).call("Acquire", namespace="default", shares=[{"name": "tensor"}])
    writer.communicate("done\n", timeout=PATIENCE_S)
    listed = open_session(gpu_daemon).call("List", page_size=10).shares[0].share.handle
    assert (listed.kind, listed.opaque) == (CUDA_IPC, b""), "the 64 bytes would grant full access"


def test_explain_denies_a_share_on_a_gpu_that_the_session_does_not_see(gpu_daemon: Daemon, open_session: Callable[..., Session]) -> None:
    writer = client(gpu_daemon, "put", "tensor")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ok\n"
    first, second = (gpu.device.uuid for gpu in gpus(open_session(gpu_daemon, client="asker")))
    sees = {"seeing": [second, first], "blind": [second], "mute": []}
    for name, seen in sees.items():
        open_session(gpu_daemon, client=name, capabilities={"kinds": [CUDA_IPC], **HERE, "gpu_uuids": seen})
    old = {"kinds": [CUDA_VMM, CUDA_IPC], **HERE, "gpu_uuids": [first], "cuda_driver_version": 4000}
    open_session(gpu_daemon, client="old", capabilities=old)
    command = [CTL, "-H", gpu_daemon.directory, "-o", "csv", "explain", "tensor"]
    rows = csv.DictReader(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())
    said = {row["CLIENT"]: (row["OFFERED"], row["WHY"]) for row in rows}
    assert said["seeing"] == ("yes", "")
    assert said["mute"] == ("maybe", "if it sees that GPU: it has not reported its GPUs")
    assert said["blind"] == ("no", f"it lies on GPU {first}, which this session does not see; it sees {second}")
    assert said["old"][0] == "no"
    assert "cuda_ipc is refused: its driver supports CUDA 4.0; this kind needs CUDA 4.1 or later" in said["old"][1]
    blind = open_session(gpu_daemon, capabilities={"kinds": [CUDA_IPC], **HERE, "gpu_uuids": [second]})
    with refused(grpc.StatusCode.FAILED_PRECONDITION, f"share 'tensor' lies on GPU {first}, which this session does not see"):
        blind.call("Acquire", namespace="default", shares=[{"name": "tensor"}])
    writer.communicate("done\n", timeout=PATIENCE_S)


def test_the_error_for_an_unknown_device_lists_the_existing_ones(gpu_daemon: Daemon, open_session: Callable[..., Session]) -> None:
    session = open_session(gpu_daemon, capabilities={"kinds": [CUDA_IPC], **HERE})
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "no device GPU-none; there are: CPU, GPU-"):
        session.call("Allocate", namespace="default", size=4096, device={"type": 2, "uuid": "GPU-none"})


def test_a_request_above_the_gpus_capacity_is_refused_with_numbers(gpu_daemon: Daemon, open_session: Callable[..., Session]) -> None:
    session = open_session(gpu_daemon, capabilities={"kinds": [CUDA_VMM]})
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "can never fit: the device has"):
        session.call("Allocate", namespace="default", size=1 << 30, device=gpus(session)[0].device)


def test_only_a_lost_gpu_is_out_of_service(
    start: Callable[..., Daemon],
    open_session: Callable[..., Session],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if os.environ.get("ARRAYBRIDGE_CUDA_DRIVER"):
        pytest.skip("a real card cannot be made to fail")
    health_pb2, health_pb2_grpc = (importlib.import_module(f"grpc_health.v1.{name}") for name in ("health_pb2", "health_pb2_grpc"))
    # The first of two GPUs that is used fails permanently; the simulated driver then fails for both.
    monkeypatch.setenv("SIMULATED_CUDA", f"devices=2;dir={tmp_path};fail=cuMemsetD8Async:1:700")
    daemon = start("--cuda-driver", DRIVER)
    session = open_session(daemon, capabilities={"kinds": [1, CUDA_VMM, CUDA_IPC]})
    first, second = (gpu.device.uuid for gpu in gpus(session))

    def health(service: str) -> Any:
        with grpc.insecure_channel(f"unix://{daemon.directory}/broker.sock") as channel:
            return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service)).status

    service = "arraybridge.v1.Broker"
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert health(f"{service}/{first}") == health(f"{service}/{second}") == serving
    wanted = {"namespace": "default", "device": {"type": 2, "uuid": first}, "size": 1}
    with refused(grpc.StatusCode.ABORTED, "cuMemsetD8Async"):
        session.call("Allocate", **wanted)
    assert health(f"{service}/{first}") == not_serving
    assert health(f"{service}/{second}") == health(service) == serving
    with refused(grpc.StatusCode.UNAVAILABLE, first):
        session.call("Allocate", **wanted)
    devices = {device.device.uuid: device for device in session.call("GetStats").devices}
    assert devices[first].out_of_service
    assert not devices[second].out_of_service
    doctor = subprocess.run([CTL, "-H", daemon.directory, "doctor"], capture_output=True, text=True, check=False)
    lines = doctor.stdout.splitlines()
    (lost,) = (line for line in lines if first in line and "PROBLEM" in line.upper())
    assert "out of service" in doctor.stdout, doctor.stdout
    assert not [line for line in lines if second in line and "PROBLEM" in line.upper()], doctor.stdout
    assert "cuMemsetD8Async" in lost
    session.publish("on the host", bytes(2048))
