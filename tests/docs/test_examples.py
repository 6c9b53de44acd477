# SPDX-License-Identifier: Apache-2.0
"""Each folder of docs/examples does what its README says. tests/python has the pipeline and the large trainer, tests/clusters Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import environment
from test_install import prefix

__all__ = ["prefix"]

EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/README.md"))


def needs(*modules: str) -> None:
    for module in modules:
        pytest.importorskip(module, reason=f"{module} is not installed")


def started(program: str, *words: str, variables: dict[str, str]) -> subprocess.Popen[str]:
    path = EXAMPLES / program
    return subprocess.Popen([sys.executable, path.name, *words], cwd=path.parent, env=variables, stdout=subprocess.PIPE, text=True)


def run(program: str, *words: str, variables: dict[str, str]) -> str:
    process = started(program, *words, variables=variables)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_readme_is_short_and_names_files_that_are_there(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 16 and text.count("```sh") == 1
    named = re.findall(r"\b[\w/.-]+\.(?:py|c|cc|ipynb|yaml)\b", text)
    places = (folder, EXAMPLES, EXAMPLES.parents[1])
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_the_overview_has_all_of_them() -> None:
    overview = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [folder.name for folder in FOLDERS if f"[{folder.name}]({folder.name}/README.md)" not in overview] == []


def test_two_processes(variables: dict[str, str]) -> None:
    needs("torch")
    consumer = started("two-processes/consumer.py", variables=variables)
    assert "generation" in run("two-processes/producer.py", variables=variables)
    output, _ = consumer.communicate()
    assert consumer.returncode == 0 and "mean 0.500" in output and "no copy" in output
    run("two-processes/producer.py", variables=variables)


def test_four_frameworks() -> None:
    needs("torch", "jax", "tensorflow")
    assert "all of them as claimed" in run("four-frameworks/demo.py", variables=environment())


def test_tables(variables: dict[str, str]) -> None:
    needs("pandas", "polars", "duckdb", "torch", "pyarrow")
    output = run("tables/tables.py", variables=variables)
    assert "put 1,000,000 rows" in output and "Bonn: 33" in output and "a minute costs 0.50" in output
    assert "torch_learns: share to torch by hand_over: no copy" in output


def test_compute_once(variables: dict[str, str]) -> None:
    output = run("compute-once/run.py", variables=variables)
    assert output.count("computes 2000 spectra") == 1
    assert output.count("has 2000 spectra, the first begins with ") == 5


def test_more_data_than_memory() -> None:
    output = run("more-data-than-memory/run.py", variables=environment())
    assert "the broker has 160 MiB of arrays in files, and 64 MiB of memory" in output
    assert "another process found 10 arrays on disk; day/0 begins with 0" in output
    assert [f"day/{day}: mean {day}.0, host" in output for day in range(10)] == [True] * 10


def test_service(variables: dict[str, str]) -> None:
    needs("torch")
    output = run("service/run.py", variables=variables)
    killed = re.search(r"server (\d+) begins with a dark image", output)
    assert killed and f"an image of 0: server {killed[1]} is gone" in output
    answers = re.findall(r"an image of (\d): inverted (\d+) by server (\d+)", output)
    assert [(int(light), int(inverted)) for light, inverted, _ in answers] == [(light, 255 - light) for light in (1, 2, 3, 4, 5, 6, 7, 8)]
    assert killed[1] not in [server for *_, server in answers[4:]]


def test_sequence(variables: dict[str, str]) -> None:
    needs("torch")
    output = run("sequence/run.py", variables=variables)
    noise = [float(each) for each in re.findall(r"step \d+: noise ([\d.]+)", output)]
    assert noise[0] > 0.9 and noise[-1] < 0.1 and all(noise[:-1][number] >= noise[number + 1] for number in range(len(noise) - 1))
    sent = re.search(r"the caller has stopped; (\d+) steps were sent", output)
    assert sent and len(noise) <= int(sent[1]) <= len(noise) + 8


def test_checkpoints(variables: dict[str, str], tmp_path: Path) -> None:
    needs("torch")
    output = run("checkpoints/run.py", str(tmp_path), variables=variables)
    assert "begins at step 0" in output and "was killed" in output
    went_on = re.search(r"goes on after step (\d+), which it got in", output)
    assert went_on and int(went_on[1]) >= 3 and "finished step 20" in output


def test_distributed_checkpoints(variables: dict[str, str], tmp_path: Path) -> None:
    needs("torch")

    def ranks(number: int, steps: int) -> str:
        """What they print. A thread of gloo may abort a rank that has ended (seen once in some fifty runs), and torchrun tells that."""
        launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
        program = str(EXAMPLES / "checkpoints/distributed.py")
        return started("-m", *launch, program, str(tmp_path), str(steps), variables=variables).communicate()[0]

    assert "after step 2 the sum is 576" in ranks(2, 3)
    output = ranks(3, 2)
    assert "3 ranks go on after step 2" in output and "after step 4 the sum is 960" in output


def test_record_and_replay() -> None:
    needs("torch", "mcap")
    output = run("record-and-replay/record_and_replay.py", variables=environment())
    recorded = re.search(r"recorded (\d+) frames, [\d,]+ bytes, (\d+) missed", output)
    assert recorded and int(recorded[1]) + int(recorded[2]) == 30
    assert f"the detector found the same in {recorded[1]} frames of the recording" in output


def test_born(variables: dict[str, str]) -> None:
    output = run("born/camera.py", variables=variables)
    assert "the viewer read 40 frames" in output
    assert re.search(r"a put took [\d,]+ us with a copy, [\d,]+ us without one", output)
    assert re.search(r"in broker memory: \d\d+ arrays, .* missed: none", output)


def test_born_frameworks() -> None:
    needs("torch", "jax")
    output = run("born/training.py", variables=environment())
    assert "torch: " in output and "jax: " in output and "missed: none; skipped: none; 5 versions stayed" in output


def test_model_server(variables: dict[str, str]) -> None:
    needs("torch")
    run("model-server/publish.py", "1", variables=variables)
    servers = [started("model-server/serve.py", "600", variables=variables) for _ in range(2)]
    first = [next(iter(server.stdout or ())).split()[-1] for server in servers]
    run("model-server/publish.py", "2", variables=variables)
    second = [next(iter(server.stdout or ())).split()[-1] for server in servers]
    for server in servers:
        server.send_signal(signal.SIGINT)
        server.communicate()
    assert len(set(first)) == len(set(second)) == 1 and int(second[0]) > int(first[0])


def test_a_web_server_of_a_model(variables: dict[str, str]) -> None:
    needs("torch", "uvicorn")
    output = run("model-server/run_web.py", variables=variables)
    answers = re.search(r"(\d+) right answers of generations \[\d+, \d+\], by 4 workers", output)
    assert answers and int(answers[1]) >= 128


def test_follow_a_trainer(variables: dict[str, str]) -> None:
    needs("torch")
    followers = [started("follow-trainer/follower.py", variables=variables) for _ in range(2)]
    assert "step 5: loss" in run("follow-trainer/trainer.py", "5", variables=variables)
    for follower in followers:
        output, _ = follower.communicate()
        generations = [int(number) for number in re.findall(r"generation (\d+)", output)]
        assert follower.returncode == 0 and generations == sorted(set(generations)) != []


def notebook_of(program: Path) -> Any:
    spec = importlib.util.spec_from_file_location("notebook", program)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.notebook()


def test_the_notebook_is_what_its_program_writes() -> None:
    made = notebook_of(EXAMPLES / "notebook/notebook.py")
    assert json.loads((EXAMPLES / "notebook/notebook.ipynb").read_text()) == made, "run docs/examples/notebook/notebook.py"


def test_the_notebook_goes_on_in_another_kernel(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    needs("nbclient", "ipykernel", "torch")
    import nbclient
    import nbformat

    for name in ("ARRAYBRIDGE_ADDRESS", "PYTHONPATH"):
        monkeypatch.setenv(name, variables[name])
    whole = nbformat.read(EXAMPLES / "notebook/notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    restart = next(number for number, cell in enumerate(whole.cells) if cell.source.startswith("Restart the kernel"))
    printed = ""
    for cells in (whole.cells[:restart], whole.cells[restart:]):
        part = nbformat.from_dict({**whole, "cells": cells})
        nbclient.NotebookClient(part, timeout=600).execute()
        printed += json.dumps(part.cells)
    assert "results: " in printed and "tensor([" in printed and '"output_type": "error"' not in printed


def made_by_cmake(source: Path, prefix: Path, folder: Path) -> list[list[str]]:
    return [["cmake", "-S", str(source), "-B", str(folder), f"-DCMAKE_PREFIX_PATH={prefix}"], ["cmake", "--build", str(folder)]]


def test_service_in_cpp_and_c(prefix: Path, variables: dict[str, str], tmp_path: Path) -> None:
    needs("torch")
    for words in made_by_cmake(EXAMPLES / "service", prefix, tmp_path):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    server = started("service/server.py", variables=variables)
    try:
        for program in ("ask", "ask_in_c"):
            done = subprocess.run([str(tmp_path / program)], env=variables, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
            answers = [f"an image of {light}: inverted {255 - light} by server {server.pid}" for light in (1, 2, 3)]
            assert done.stdout.splitlines() == answers
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("language", ["cpp", "c"])
def test_cpp_and_c(language: str, prefix: Path, variables: dict[str, str], tmp_path: Path) -> None:
    source = EXAMPLES / language
    if language == "cpp":
        make = made_by_cmake(source, prefix, tmp_path)
    else:
        (pages,) = {str(path.parent) for path in prefix.glob("lib/**/arraybridge-c.pc")}
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "arraybridge-c"],
            env={**os.environ, "PKG_CONFIG_PATH": pages},
            capture_output=True,
            text=True,
        )
        warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
        make = [["gcc", "-std=c11", *warnings, str(source / "main.c"), "-o", str(tmp_path / "main"), *flags.stdout.split()]]
    for words in make:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (library,) = {str(path.parent) for path in prefix.glob("lib/**/libarraybridge.so.1")}
    for verb, output in {"put": "put numbers", "get": "sum 523776"}.items():
        words = [str(tmp_path / "main"), verb]
        done = subprocess.run(words, env=variables | {"LD_LIBRARY_PATH": library}, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and output in done.stdout, done.stdout


def test_grpc_client(variables: dict[str, str]) -> None:
    needs("grpc", "grpc_reflection")
    run("two-processes/producer.py", variables=variables)
    printed = run("grpc/client.py", variables["ARRAYBRIDGE_ADDRESS"], "image", variables=variables)
    assert printed == "image: float32[1080, 1920], 8294400 bytes, the first 00 00 00 00\n"


def test_the_programs_of_the_containers(variables: dict[str, str]) -> None:
    """The viewer is killed, as the README says."""
    camera = started("compose/camera.py", variables=variables)
    try:
        for _ in range(2):
            viewer = started("compose/viewer.py", variables=variables)
            assert next(iter(viewer.stdout or ())).startswith("brightness")
            viewer.kill()
            viewer.communicate()
        assert camera.poll() is None
    finally:
        camera.kill()
        camera.communicate()


def test_the_composition() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    services = yaml.safe_load((EXAMPLES / "compose/compose.yaml").read_text())["services"]
    assert set(services) == {"broker", "camera", "viewer"}
    for service in services.values():
        assert service["volumes"] == ["sockets:/run/arraybridge"] and service["network_mode"] == "none"
        assert service["user"] == services["broker"]["user"]
        build = EXAMPLES / "compose" / service["build"]["context"]
        assert (build / service["build"]["dockerfile"]).exists()
    assert services["viewer"]["depends_on"] == {"broker": {"condition": "service_healthy"}} and services["broker"]["healthcheck"]
    for service in ("camera", "viewer"):
        assert (EXAMPLES / "compose" / services[service]["command"][1]).exists()
    if importlib.util.find_spec("podman_compose") and shutil.which("podman"):
        words = [sys.executable, "-m", "podman_compose", "-f", str(EXAMPLES / "compose/compose.yaml"), "config"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
