# SPDX-License-Identifier: Apache-2.0
"""arraybridgectl doctor: the memory that this host and the broker can share, and reason and remedy for the rest."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from foreign_client import BUILD, Daemon
from test_arraybridgectl import ERROR, NOBODY, USAGE, ctl


def findings(*arguments: object, prefix: Sequence[str] = ()) -> tuple[int, dict[str, dict[str, str]]]:
    answer = ctl(*arguments, "-o", "json", "doctor", prefix=prefix)
    return answer.returncode, {finding["what"]: finding for finding in json.loads(answer.stdout)}


def test_doctor_lists_shared_memory_and_reasons_for_the_rest(start: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", "devices=1;off=103")
    driver = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"
    code, found = findings("-H", start("--cuda-driver", driver).directory)
    assert code == 0
    assert found["broker"]["health"] == found["cpu"]["health"] == found["PID namespace"]["health"] == "ok"
    gpu = next(finding for what, finding in found.items() if what.startswith("cuda:GPU-"))
    assert gpu["health"] == "note"
    assert gpu["finding"].startswith("shared as cuda_ipc, 0 B of ")
    assert gpu["finding"].endswith("not as cuda_vmm: the driver exports no descriptors (as under WSL2)")
    assert all_mend(found)


def test_doctor_names_a_platform_that_cannot_share_gpus(start: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", "devices=2;integrated=0;mig=1")
    driver = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"
    code, found = findings("-H", start("--cuda-driver", driver).directory)
    assert code == 0
    gpus = {what[:9]: finding["finding"] for what, finding in found.items() if what.startswith("cuda:")}
    assert gpus["cuda:GPU-"].endswith("not as cuda_ipc: an integrated GPU does not support cudaIpcMemHandle")
    assert gpus["cuda:MIG-"].startswith("shared as cuda_vmm,cuda_ipc,")


@pytest.mark.parametrize(
    ("driver", "machine", "why"),
    [
        ("none", "", "GPUs are disabled (--cuda-driver none)"),
        ("/nowhere/libcuda.so.1", "", "cannot be loaded"),
        (None, "devices=0", "CUDA_ERROR_NO_DEVICE"),
        (None, "version=11000", "11"),
    ],
)
def test_doctor_names_the_reason_for_a_missing_gpu(
    start: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch, driver: str | None, machine: str, why: str
) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", machine)
    simulated = str(BUILD / "tests/simulated_cuda/libsimulated_cuda.so")
    _, found = findings("-H", start("--cuda-driver", driver or simulated).directory)
    assert found["GPUs"]["finding"].startswith("none served: ")
    assert why in found["GPUs"]["finding"], found["GPUs"]
    assert ("config show" in found["GPUs"]["mend"]) == (driver == "none") and all_mend(found)


def test_doctor_without_a_broker_examines_the_host(tmp_path: Path) -> None:
    code, found = findings("-H", tmp_path)
    assert code == 1
    assert found["broker"]["health"] == "problem"
    assert {"kernel", "huge pages", "descriptors", "address space", "memory limit", "device nodes"} <= set(found)
    for door in ("broker.sock", "lifeline.sock"):
        assert found[door]["health"] == "problem" and "no broker serves" in found[door]["finding"]
        assert found[door]["mend"] == f"arraybridged --directory {tmp_path}"
    assert found["broker"]["mend"] == f"arraybridged --directory {tmp_path}"
    assert all_mend(found)


def all_mend(found: dict[str, dict[str, str]]) -> bool:
    """Every problem has a remedy, and nothing else has."""
    wrong = {what: finding for what, finding in found.items() if bool(finding.get("mend")) != (finding["health"] != "ok")}
    assert not wrong
    return True


def test_doctor_has_a_remedy_for_a_draining_broker(start: Callable[..., Daemon]) -> None:
    daemon = start("--drain-timeout", "60s")
    assert ctl("-H", daemon.directory, "drain").returncode == 0
    code, found = findings("-H", daemon.directory)
    assert (code, found["broker"]["health"]) == (1, "problem") and " is draining" in found["broker"]["finding"]
    shutdown, start_again = found["broker"]["mend"].split(", then ")
    assert start_again == f"arraybridged --directory {daemon.directory}"
    assert shutdown == f"arraybridgectl -H {daemon.directory} shutdown --now"
    assert ctl(*shutdown.split()[1:]).returncode == 0
    assert daemon.process.wait() == 0, "then its directory is free"


def mend_of_the_broker(*address: object, **environment: str) -> str:
    answer = ctl(*address, "-o", "json", "doctor", **environment)
    return next(finding for finding in json.loads(answer.stdout) if finding["what"] == "broker")["mend"]


def test_doctors_remedy_is_for_the_given_address(tmp_path: Path) -> None:
    own = f"arraybridged --directory {tmp_path}"
    assert mend_of_the_broker("-H", tmp_path) == mend_of_the_broker(ARRAYBRIDGE_ADDRESS=str(tmp_path)) == own
    assert mend_of_the_broker("-H", f"unix://{tmp_path}/b.sock") == f"{own} --listen unix://{tmp_path}/b.sock"
    assert mend_of_the_broker("-H", "/run/arraybridge/") == "sudo systemctl restart arraybridged"
    assert mend_of_the_broker("-H", "nonsense://x").startswith("arraybridgectl -H /run/arraybridge doctor")


def test_doctor_has_a_remedy_for_a_broker_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "broker.sock"))
        silent.listen()
        mend = mend_of_the_broker("-H", tmp_path, "--timeout", "200ms")
    assert mend == f"fuser --kill {tmp_path}/lock, then arraybridged --directory {tmp_path}"


SIMULATED = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"


@pytest.mark.parametrize(
    ("machine", "health", "said", "gpus"),
    [
        ("devices=2", "ok", "shows 2 GPUs", {"GPU 0": ("ok", "as cuda_vmm, cuda_ipc"), "GPU 1": ("ok", "as cuda_vmm, cuda_ipc")}),
        ("devices=1;off=103", "ok", "shows 1 GPU", {"GPU 0": ("note", "as cuda_ipc; not as cuda_vmm: the driver exports no descriptors")}),
        ("devices=1;integrated=0", "ok", "shows 1 GPU", {"GPU 0": ("note", "not as cuda_ipc: an integrated GPU does not support")}),
        ("devices=1;off=103;integrated=0", "ok", "shows 1 GPU", {"GPU 0": ("problem", "as nothing; not as cuda_vmm")}),
        ("devices=1;one_memory=0", "ok", "shows 1 GPU", {"GPU 0": ("ok", " has one memory with the host, can be shared as cuda_vmm")}),
        ("devices=1", "ok", "shows 1 GPU", {"GPU 0": ("ok", " reads mapped host memory over its bus, can be shared as")}),
        ("devices=1;off=113", "ok", "shows 1 GPU", {"GPU 0": ("ok", "reads no host memory in place: the driver registers no read-only")}),
        ("devices=0", "note", "CUDA_ERROR_NO_DEVICE", {}),
        ("version=11000", "problem", "supports CUDA 11.0", {}),
    ],
)
def test_doctor_checks_gpus_without_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, health: str, said: str, gpus: dict[str, tuple[str, str]]
) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", machine)
    answer = ctl("-H", tmp_path, "-o", "json", "doctor", "--cuda-driver", SIMULATED)
    found = {finding["what"]: finding for finding in json.loads(answer.stdout)}
    driver = found["CUDA driver"]
    assert driver["health"] == health and said in driver["finding"]
    assert {what for what in found if what.startswith("GPU ")} == set(gpus)
    for what, (its_health, its_words) in gpus.items():
        assert found[what]["health"] == its_health and its_words in found[what]["finding"], found[what]
        assert found[what]["finding"].startswith("GPU-")
    assert all_mend(found)


def test_doctor_reports_a_missing_driver_unless_told_not_to_check(tmp_path: Path) -> None:
    answer = ctl("-H", tmp_path, "-o", "json", "doctor", "--cuda-driver", "/nowhere/libcuda.so.1")
    (driver,) = (finding for finding in json.loads(answer.stdout) if finding["what"] == "CUDA driver")
    assert driver["health"] == "note" and "cannot be loaded" in driver["finding"] and "libcuda1" in driver["mend"]
    assert "CUDA driver" not in ctl("-H", tmp_path, "doctor", "--cuda-driver", "none").stdout


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that prints its arguments."""
    program = tmp_path / "python3"
    program.write_text("#!/bin/bash\ncase $2 in *run_module*arraybridge*) echo $1 ${@:3} ;; esac\n")
    program.chmod(0o755)
    return program


def test_doctor_has_the_findings_of_the_python_that_started_it(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python.write_text(
        "#!/bin/bash\necho a line of a framework\nprintf 'words\\tok\\t%s\\t\\nnumpy\\tproblem\\told\\tpip install\\n' \"${*:3}\"\n"
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("ARRAYBRIDGE_PYTHON", str(python))
    code, found = findings("-H", tmp_path)
    assert code == ERROR and found["words"] == {"what": "words", "health": "ok", "finding": "findings", "mend": ""}
    assert found["numpy"] == {"what": "numpy", "health": "problem", "finding": "old", "mend": "pip install"}
    assert found["broker"]["health"] == "problem", "of an address that is given"
    if not Path("/run/arraybridge").exists():
        assert findings()[1]["broker"]["health"] == "note", "the first Broker() starts one"
    python.write_text("#!/bin/sh\nexit 3\n")
    assert findings()[1]["Python"]["finding"] == "has no findings: ended with exit status 3"
    monkeypatch.setenv("ARRAYBRIDGE_PYTHON", "/nowhere/python3")
    assert findings()[1]["Python"]["finding"] == "has no findings: there is no /nowhere/python3"
    monkeypatch.delenv("ARRAYBRIDGE_PYTHON")
    assert "Python" not in findings()[1]


def test_record_and_replay_become_python(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(python.parent), prepend=":")
    assert ctl("record", "-o", "run.mcap", "frames").stdout == "-c record --file=run.mcap -- frames\n"
    words = ["--compression=zstd", "--seconds=2", "--nice=0", "--foxglove", "--follow", "--replace"]
    told = ctl("-H", "/there", "-n", "team", "-o", "json", "record", *words, "--file", "--odd", "a", "b").stdout
    assert told == "-c record --address=/there --output=json --namespace=team --file=--odd " + " ".join(words) + " -- a b\n"
    assert ctl("replay", "run.mcap").stdout == "-c replay -- run.mcap\n"
    words = ["--speed=2", "--from=10s", "--to=1min", "--mode=latest", "--wait=5s", "--rename=a=b", "--rename=c=d"]
    assert ctl("replay", *words, "run.mcap", "a", "c").stdout == "-c replay " + " ".join(words) + " -- run.mcap a c\n"
    assert ctl("record", "--output=json", "-o", "f", "a").stdout == "-c record --output=json --file=f -- a\n"
    for wrong in (ctl("record", "frames"), ctl("record", "-o", "f"), ctl("replay"), ctl("-o", "csv", "replay", "f")):
        assert wrong.returncode == USAGE
    python.write_text("#!/bin/sh\nexit 130\n")
    assert ctl("replay", "run.mcap").returncode == 130, "the status is Python's own"
    monkeypatch.setenv("ARRAYBRIDGE_PYTHON", "/nowhere/python3")
    assert "replay needs Python: there is no /nowhere/python3" in ctl("replay", "run.mcap").stderr


def test_load_delegates_to_python(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(python.parent), prepend=":")
    assert ctl("load", "a.npz").stdout == "-c load -- a.npz\n"
    told = ctl("-H", "/there", "-n", "team", "-o", "json", "load", "--name", "--odd", "--sha256", "--device=cuda:1", "a", "b").stdout
    assert told == "-c load --address=/there --output=json --namespace=team --name=--odd --sha256 --device=cuda:1 -- a b\n"
    for wrong in (ctl("load"), ctl("-o", "csv", "load", "a")):
        assert wrong.returncode == USAGE
    python.write_text('#!/bin/sh\necho "$ARRAYBRIDGE_TOKEN"\nexit 2\n')
    secret = python.parent / "token"
    secret.write_text("sesame-0123456789abcdef0123456789abcdef\n")
    secret.chmod(0o600)
    found = ctl("--token-file", secret, "load", "a")
    assert (found.returncode, found.stdout) == (ERROR, secret.read_text())


def test_doctor_runs_no_program_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("arraybridge", "runpy", "numpy"):
        (tmp_path / f"{module}.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    ctl("doctor", "numpy")
    assert not (tmp_path / "ran").exists()


def test_doctor_names_remedies_for_limits_and_sockets(start: Callable[..., Daemon], tmp_path: Path) -> None:
    _, found = findings("-H", tmp_path, prefix=["prlimit", "--nofile=512:", f"--as={1 << 40}", "--memlock=65536:"])
    assert (found["locked memory"]["health"], "lock 64 KiB" in found["locked memory"]["finding"]) == ("note", True)
    assert "LimitMEMLOCK=infinity" in found["locked memory"]["mend"]
    assert (found["descriptors"]["health"], found["descriptors"]["mend"]) == ("note", "ulimit -n 4096")
    assert (found["address space"]["health"], found["address space"]["mend"]) == ("note", "ulimit -v unlimited")
    (tmp_path / "broker.sock").write_text("")
    _, found = findings("-H", tmp_path)
    assert found["broker.sock"]["mend"] == f"rm {tmp_path}/broker.sock"
    directory = start().directory
    _, found = findings("-H", directory)
    assert found["broker.sock"]["health"] == found["lifeline.sock"]["health"] == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_doctor_lists_the_users_that_may_connect() -> None:
    with tempfile.TemporaryDirectory(prefix="ab-") as directory, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{directory}/broker.sock")
        os.chmod(f"{directory}/broker.sock", 0o660)
        os.chmod(directory, 0o700)
        code, found = findings("-H", directory, prefix=NOBODY)
        assert code != 0 and "must not read its directory" in found["broker.sock"]["finding"]
        os.chmod(directory, 0o755)
        code, found = findings("-H", directory, prefix=NOBODY)
        assert code != 0 and found["broker.sock"]["mend"] == 'sudo usermod -aG root "$USER"'
        assert found["lifeline.sock"]["mend"] == f"arraybridged --directory {directory}"
