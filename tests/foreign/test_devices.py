# SPDX-License-Identifier: Apache-2.0
"""The devices that a daemon serves: those of the configuration that exist. On the simulated driver."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from foreign_client import BUILD, CTL, DAEMON, Daemon, Session, eventually, refused
from grpc_health.v1 import health_pb2, health_pb2_grpc

DRIVER = str(BUILD / "tests/simulated_cuda/libsimulated_cuda.so")
FIRST, SECOND = (f"GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a0{n}" for n in range(2))
CPU, CUDA = 1, 2
CUDA_VMM, CUDA_IPC = 2, 3
CONFIGURATION, FAILED = 1, 3  # v1.RefusalCause
MEMORY = 67108864
HERE = {
    "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", f"devices=2;dir={tmp_path};memory={MEMORY}")


@pytest.fixture
def no_start(tmp_path: Path) -> Callable[..., str]:
    def why(*flags: str) -> str:
        command = [DAEMON, "--directory", tmp_path / "refused", "--log-format", "text", *flags]
        (tmp_path / "refused").mkdir(mode=0o700)
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 1
        return done.stderr

    return why


def served(session: Session) -> list[tuple[int, str]]:
    return [(device.device.type, device.device.uuid) for device in session.opened.server.devices]


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def in_service(session: Session) -> list[tuple[int, str]]:
    return [(device.device.type, device.device.uuid) for device in session.opened.server.devices if not device.out_of_service]


def loaded(daemon: Daemon) -> bool:
    return DRIVER in Path(f"/proc/{daemon.process.pid}/maps").read_text()


@pytest.mark.parametrize(
    ("flags", "devices"),
    [
        ([], [(CPU, ""), (CUDA, FIRST), (CUDA, SECOND)]),
        (["--backend", "cuda"], [(CPU, ""), (CUDA, FIRST), (CUDA, SECOND)]),
        (["--backend", "host"], [(CPU, "")]),
        (["--device", "host"], [(CPU, "")]),
        (["--device", f"cuda:{SECOND}", "--device", "host"], [(CPU, ""), (CUDA, SECOND)]),
        (["--device", "cuda:1"], [(CUDA, SECOND)]),
    ],
)
def test_configured_devices_are_served(
    start: Callable[..., Daemon], open_session: Callable[..., Session], flags: list[str], devices: list[Any]
) -> None:
    daemon = start("--cuda-driver", DRIVER, *flags)
    assert served(open_session(daemon)) == devices
    assert loaded(daemon) == any(kind == CUDA for kind, _ in devices)


def test_a_file_names_gpus_by_uuid(start: Callable[..., Daemon], open_session: Callable[..., Session], tmp_path: Path) -> None:
    named = write(tmp_path / "named.toml", f'memory.devices = ["cuda:{SECOND}"]\nmemory.cuda.driver = "{DRIVER}"\n')
    session = open_session(start("--config", named))
    assert served(session) == [(CUDA, SECOND)]
    with refused(grpc.StatusCode.INVALID_ARGUMENT, f"no device CPU; there are: {SECOND}"):
        session.call("Allocate", namespace="default", size=4096)
    numbered = write(tmp_path / "numbered.toml", 'memory.devices = ["cuda:1"]\n')
    done = subprocess.run([DAEMON, "--config", numbered, "--check-config"], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{numbered}:1:" in done.stderr
    assert "'cuda:1' can mean another GPU in another process; name the GPU by its UUID" in done.stderr


def test_the_error_for_a_missing_device_lists_the_existing_ones(no_start: Callable[..., str]) -> None:
    missing = SECOND[:-1] + "7"
    said = no_start("--cuda-driver", DRIVER, "--device", f"cuda:{missing}")
    assert f"there is no device cuda:{missing}; the devices are: host, cuda:{FIRST} (cuda:0), cuda:{SECOND} (cuda:1)" in said


def test_a_broken_gpu_is_an_error_only_if_it_is_configured(
    start: Callable[..., Daemon],
    no_start: Callable[..., str],
    open_session: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", os.environ["SIMULATED_CUDA"] + ";fail=cuDeviceTotalMem:1:999")
    daemon = start("--cuda-driver", DRIVER, "--log-format", "text")
    session = open_session(daemon)
    assert in_service(session) == [(CPU, ""), (CUDA, SECOND)]
    assert "GPU 0 cannot be used: cuDeviceTotalMem" in daemon.log.read_text()
    said = no_start("--cuda-driver", DRIVER, "--device", f"cuda:{FIRST}")
    assert f"there is no device cuda:{FIRST}; the devices are: host, cuda:{SECOND} (cuda:1); GPU 0 cannot be used: cuDevice" in said


@pytest.mark.parametrize(
    ("symbol", "name", "service"),
    [("cuDeviceTotalMem", f"cuda:{FIRST}", FIRST), ("cuDeviceGetUuid", "cuda:0", "cuda:0")],
)
def test_a_gpu_that_was_broken_at_the_start_is_listed(
    start: Callable[..., Daemon],
    open_session: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
    symbol: str,
    name: str,
    service: str,
) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", os.environ["SIMULATED_CUDA"] + f";fail={symbol}:1:999")
    daemon = start("--cuda-driver", DRIVER, "--http", "127.0.0.1:0")
    (broken,) = (device for device in open_session(daemon).opened.server.devices if device.out_of_service)
    assert broken.device.uuid == ("" if name == "cuda:0" else FIRST)
    assert (list(broken.kinds), broken.capacity_bytes) == ([], 0)
    assert {(refused.kind, refused.cause) for refused in broken.refused} == {(CUDA_VMM, FAILED), (CUDA_IPC, FAILED)}
    assert "could not be used when the broker started: cuDevice" in broken.refused[0].why

    (up,) = (line for line in daemon.page("/metrics").splitlines() if line.startswith('arraybridge_device_up{device="cuda:0"'))
    assert up.endswith(" 0")
    with grpc.insecure_channel(f"unix://{daemon.directory}/broker.sock") as channel:
        asked = health_pb2.HealthCheckRequest(service=f"arraybridge.v1.Broker/{service}")
        answer = health_pb2_grpc.HealthStub(channel).Check(asked)
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING

    def said(*words: str) -> str:
        return subprocess.run([CTL, "-H", daemon.directory, *words], capture_output=True, text=True, check=False).stdout

    for words in (["info"], ["doctor"], ["-o", "wide", "ls", "devices"]):
        (line,) = (line for line in said(*words).splitlines() if f"{name} " in line)
        assert "could not be used when the broker started: cuDevice" in line, words
    assert "out of service: it could not be used" in said("doctor")


def test_host_memory_is_served_if_every_gpu_is_broken(
    start: Callable[..., Daemon],
    no_start: Callable[..., str],
    open_session: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", os.environ["SIMULATED_CUDA"] + ";fail=cuDeviceTotalMem:*:999")
    session = open_session(start("--cuda-driver", DRIVER))
    assert in_service(session) == [(CPU, "")]
    assert served(session) == [(CPU, ""), (CUDA, FIRST), (CUDA, SECOND)]
    assert session.opened.server.no_gpu_cause == FAILED
    said = no_start("--cuda-driver", DRIVER, "--backend", "cuda")
    assert "but there is no GPU: the driver's GPUs cannot be used; GPU 0 cannot be used: cuDevice" in said


def test_a_configured_gpu_without_a_driver_prevents_the_start(no_start: Callable[..., str]) -> None:
    said = no_start("--cuda-driver", "/nowhere/libcuda.so.1", "--backend", "cuda")
    assert "cannot start: memory.backend (--backend) is cuda, but there is no GPU: " in said


def test_a_missing_gpu_without_a_driver_has_a_reason(no_start: Callable[..., str]) -> None:
    said = no_start("--cuda-driver", "none", "--device", "cuda:0")
    assert "there is no device cuda:0; the devices are: host; no GPU: GPUs are disabled (--cuda-driver none)" in said


def test_a_gpus_table_determines_its_sharing(start: Callable[..., Daemon], open_session: Callable[..., Session], tmp_path: Path) -> None:
    absent = SECOND[:-1] + "7"
    lines = [
        f'[memory.cuda]\ndriver = "{DRIVER}"\nkinds = ["cuda_ipc", "cuda_vmm"]',
        f'[memory."{SECOND}"]\ncapacity = "50%"\nkinds = ["cuda_vmm"]',
        f'[memory."{absent}"]\ncapacity = "10%"\n',
    ]
    file = write(tmp_path / "gpus.toml", "\n".join(lines))
    daemon = start("--config", file, "--log-format", "text")
    first, second = open_session(daemon).opened.server.devices[1:]
    assert (first.device.uuid, list(first.kinds), first.capacity_bytes) == (FIRST, [CUDA_IPC, CUDA_VMM], MEMORY * 8 // 10)
    assert (second.device.uuid, list(second.kinds), second.capacity_bytes) == (SECOND, [CUDA_VMM], MEMORY // 2)
    assert [(refusal.kind, refusal.cause) for refusal in second.refused] == [(CUDA_IPC, CONFIGURATION)]
    assert "does not list it" in second.refused[0].why
    doctor = subprocess.run([CTL, "-H", daemon.directory, "doctor"], capture_output=True, text=True, check=False).stdout
    (line,) = (line for line in doctor.splitlines() if line.startswith(f"cuda:{SECOND}"))
    assert "list it in memory.cuda.kinds" in line
    assert f'[memory."{absent}"]: there is no such GPU; the devices are: host, cuda:{FIRST}' in daemon.log.read_text()
    ask = {"namespace": "default", "size": 1 << 20}
    session = open_session(daemon, capabilities={"kinds": [CUDA_VMM, CUDA_IPC], **HERE})
    assert session.call("Allocate", device=first.device, **ask).handle.kind == CUDA_IPC, "the preferred kind"
    assert session.call("Allocate", device=second.device, **ask).handle.kind == CUDA_VMM
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "is shared as cuda_vmm"):
        open_session(daemon, capabilities={"kinds": [CUDA_IPC], **HERE}).call("Allocate", device=second.device, **ask)
    write(Path(file), "\n".join([lines[0].replace('"cuda_ipc", ', ""), lines[1].replace("50%", "60%"), lines[2]]))
    daemon.process.send_signal(signal.SIGHUP)
    eventually("it is told", lambda: f"kept until a restart: memory.cuda.kinds, memory.{SECOND}.capacity" in daemon.log.read_text())
