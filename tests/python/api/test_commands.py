# SPDX-License-Identifier: Apache-2.0
"""python -m arraybridge: what it prints, and its exit status."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from processes import ROOT, environment

import arraybridge
from arraybridge import adapters, commands, planner
from arraybridge.commands import findings, matrix, samples, tables
from arraybridge.errors import DeviceUnavailable, UnsupportedDtype


def ask(*words: str, **changes: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "arraybridge", *words],
        capture_output=True, text=True, env=environment(**changes), cwd=tempfile.gettempdir(), check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def selftest() -> tuple[int, str, str]:
    """Of all that is installed."""
    return ask("selftest")


def test_selftest_converts_between_all_that_is_installed(selftest):
    status, out, err = selftest
    assert status == 0, out + err
    names = samples.installed()
    assert {"numpy", "torch", "tensorflow", "jax"} <= set(names)
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("|")]
    assert header == ["from \\ to", *names] and [row[0] for row in rows] == names
    cells = {(row[0], target): cell for row in rows for target, cell in zip(names, row[1:], strict=True)}
    assert all(re.fullmatch(r"(same|shared|\d (copy|copies))( / (same|shared|\d (copy|copies)))*", cell) for cell in cells.values())
    assert cells["numpy", "numpy"] == cells["torch", "torch"] == cells["jax", "jax"] == "same"
    assert cells["numpy", "torch"] == cells["torch", "numpy"] == cells["tensorflow", "jax"] == "shared"
    # Whose arrays are written to are copied for who never writes.
    assert {cells[source, target] for source in ("numpy", "torch") for target in ("tensorflow", "jax")} == {"1 copy"}
    assert f"\n{len(names) ** 2} pairs" in out and "0 failed" in out


def test_the_selftest_has_the_name_of_pydlpacks(selftest):
    program = """if True:
        import sys, arraybridge.dlpack
        lazily = arraybridge.dlpack.tests
        import arraybridge.dlpack.tests
        from arraybridge.dlpack import tests
        assert lazily is tests is arraybridge.dlpack.tests
        sys.exit(arraybridge.dlpack.tests.run())
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), cwd=tempfile.gettempdir(), check=False
    )  # fmt: skip
    assert (done.returncode, done.stdout) == selftest[:2], done.stderr


def test_selftest_of_two_prints_their_pairs_alone():
    status, out, err = ask("selftest", "numpy", "torch")
    assert status == 0 and "4 pairs" in out and "jax" not in out, out + err


def test_selftest_says_who_is_left_out_and_asks_nobody_twice(selftest):
    status, out, err = ask("selftest", "numpy", "numpy")
    assert status == 0 and out.count("| numpy") == 2 and "\n1 pair, each as" in out, out + err
    missing = [name for name in adapters.NAMES if importlib.util.find_spec(name) is None]
    status, out, err = selftest
    assert status == 0 and all(name in out.splitlines()[-1] for name in missing), out + err
    assert all(f"{name} (not installed)" in out for name in missing)


BROKEN = """
import numpy, sys
from arraybridge import commands
from arraybridge.adapters import torch
right = torch.view
def wrong(view):
    tensor = right(view)
    return tensor + 1 if view.ndim == 2 and tensor.dtype.is_floating_point else tensor
torch.view = wrong
sys.exit(commands.main(["selftest", "numpy", "torch"]))
"""


def test_selftest_finds_wrong_values():
    done = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 1 and "numpy to torch, float32: convert changed the values" in done.stdout, done.stderr


NUMBA_WITHOUT_GPU = """
import sys, types
from importlib.machinery import ModuleSpec
for name in ("numba", "numba.cuda"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = ModuleSpec(name, None)
    sys.modules[name].__version__ = "0.68.1"
from arraybridge import commands
sys.exit(commands.main(["selftest", *sys.argv[1:]]))
"""


def test_selftest_without_a_gpu_skips_frameworks_that_have_nothing_else():
    found = [
        subprocess.run([sys.executable, "-c", NUMBA_WITHOUT_GPU, *words], capture_output=True, text=True, env=environment(), check=False)
        for words in ((), ("numpy", "numba"))
    ]
    reason = "its arrays lie on GPUs only, and this process sees none"
    assert found[0].returncode == 0 and f"numba ({reason})" in found[0].stdout.splitlines()[-1], found[0]
    assert "0 failed" in found[0].stdout and "| numba" not in found[0].stdout
    assert found[1].returncode == 1 and f"numba is not available here: {reason}" in found[1].stdout, "asked for by name"


def test_selftest_of_what_is_missing_fails():
    status, out, _ = ask("selftest", "numpy", "cupy")
    assert status == 1 and "cupy is not available here" in out
    status, out, _ = ask("selftest", "cupy")
    assert (status, out) == (1, "cupy is not available here: not installed\n"), "no table of nobody"
    status, _, err = ask("selftest", "nump")
    assert status == 2 and "'nump' is not the name of a framework (did you mean 'numpy'?)" in err


def test_bench_writes_markdown_and_a_plot(tmp_path: Path):
    page, plot = tmp_path / "b.md", tmp_path / "b.png"
    status, out, err = ask("bench", "--target", "numpy", "--sizes", "4K,64K", "--rounds", "3", "--output", str(page), "--plot", str(plot))
    assert status == 0, err
    assert page.read_text() == out and out.startswith("# numpy to numpy")
    rows = {tuple(line.split("|")[i].strip() for i in (1, 2)): line for line in out.splitlines() if "," in line}
    copied = {key: line.split("|")[4].strip() for key, line in rows.items()}
    assert copied["convert, copy=False", "4,096"] == "0" and copied["convert, copy=True", "65,536"] == "65,536"
    assert copied["put and get", "4,096"] == "4,096" and copied["pickle", "65,536"] == "131,072"
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_bench_without_matplotlib_or_framework_says_so(tmp_path: Path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('blocked')")
    path = f"{tmp_path}:{environment()['PYTHONPATH']}"
    status, out, err = ask("bench", "--target", "numpy", "--plot", str(tmp_path / "b.png"), PYTHONPATH=path)
    assert (status, out) == (2, "") and "matplotlib is not available" in err
    status, _, err = ask("bench", "--target", "cupy")
    assert status == 2 and "cupy is not available here" in err
    assert ask("bench", "--sizes", "4X")[0] == 2


def test_bench_refuses_what_would_fail_in_the_end(tmp_path: Path):
    for words, said in (
        (("--rounds", "0"), "--rounds: must be at least 1, not 0"),
        (("--rounds", "-5"), "--rounds: must be at least 1, not -5"),
        (("--rounds", "many"), "--rounds: must be at least 1, not many"),
        (("--output", str(tmp_path / "no" / "b.md")), "--output: there is no folder"),
        (("--plot", str(tmp_path / "no" / "b.png")), "--plot: there is no folder"),
        (("--output", str(tmp_path)), "is a folder; name a file"),
        (("--plot", str(tmp_path)), "is a folder; name a file"),
        (("--sizes", "4K,9000000G", "--rounds", "1"), "not enough memory for arrays of 9,663,676,416,000,000 bytes"),
    ):
        status, out, err = ask("bench", "--target", "numpy", *words)
        assert (status, out) == (2, "") and said in err and "Traceback" not in err, (words, err)


def test_its_version_and_its_interruption(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    assert ask("--version")[:2] == (0, f"arraybridge {arraybridge.__version__}\n")

    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.explain, "run", interrupted)
    assert commands.main(["explain", "torch", "jax"]) == 130, "as shells say it, without a word"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("explain", "torch", "jax"), ("selftest", "numpy"), ("--help",)], ids=" ".join)
def test_what_nobody_reads_or_takes_ends_without_a_traceback(words: tuple[str, ...], unbuffered: str):
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w", encoding="utf-8") as full, os.fdopen(writer, "w") as unread:
        ends = {}
        for end in (full, unread):
            done = subprocess.run(
                [sys.executable, "-m", "arraybridge", *words], stdout=end, stderr=subprocess.PIPE, text=True, check=False,
                env=environment(PYTHONUNBUFFERED=unbuffered), cwd=tempfile.gettempdir(),
            )  # fmt: skip
            ends[end] = done.returncode, done.stderr
    assert ends[unread] == (141, "")
    prog = "python -m arraybridge" + ("" if words == ("--help",) else f" {words[0]}")
    assert ends[full] == (2, f"{prog}: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("words", [("explain", "torch", "jax"), ("selftest", "numpy")], ids=" ".join)
def test_who_closed_standard_output_hears_nothing(words: tuple[str, ...]):
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "arraybridge", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, env=environment(), cwd=tempfile.gettempdir())
    assert (done.returncode, done.stderr) == (0, "")


def test_explain_needs_no_framework(capsys: pytest.CaptureFixture[str]):
    assert commands.main(["explain", "torch", "jax"]) == 0
    out = capsys.readouterr().out
    assert "torch to jax by place: 1 copy" in out and "because immutable_target" in out
    assert "copy=False: torch to jax by hand_over: no copy" in out
    assert commands.main(["explain", "cupy", "torch", "--gpu"]) == 0
    assert "cupy to torch by hand_over: no copy" in capsys.readouterr().out
    assert commands.main(["explain", "numpy", "pyclesperanto", "--shape", "2,2,2,2"]) == 1
    assert capsys.readouterr().out == "refused: rank: pyclesperanto has at most 3 dimensions, and the array has 4: reshape it first\n", (
        "once, whatever copy= says"
    )
    assert commands.main(["explain", "numpy", "pyclesperanto", "--dtype", "float64"]) == 1
    assert "pass allow_downcast=True" in capsys.readouterr().out
    assert commands.main(["explain", "numpy", "pyclesperanto", "--dtype", "float64", "--allow-downcast"]) == 0
    assert "because dtype: narrowed from float64 to float32" in capsys.readouterr().out
    assert commands.main(["explain", "numpy", "jax", "--dtype", "int64"]) == 0
    out = capsys.readouterr().out
    assert "with its default configuration (64-bit types off): refused: jax would narrow int64 to int32" in out
    assert commands.main(["explain", "numpy", "pyarrow", "--dtype", "bool"]) == 1
    assert "one dimension only" in capsys.readouterr().out
    assert commands.main(["explain", "numpy", "pyarrow", "--dtype", "bool", "--shape", "3"]) == 0
    assert commands.main(["explain", "torch", "nothing"]) == 2
    with pytest.raises(SystemExit, match="2"):
        commands.main(["explain", "torch", "jax", "--shape", "3x4"])
    assert "--shape: sizes must be numbers separated by commas, not '3x4'" in capsys.readouterr().err
    loaded = "import sys; from arraybridge import commands; commands.main(['explain', 'torch', 'jax'])\n"
    code = loaded + "assert not {'torch', 'jax', 'tensorflow'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0


def test_the_page_is_the_planners():
    script = importlib.util.spec_from_file_location("conversion_matrix", ROOT / "docs" / "reference" / "conversion_matrix.py")
    assert script is not None and script.loader is not None
    module = importlib.util.module_from_spec(script)
    script.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run docs/reference/conversion_matrix.py"


def test_matrix_cells():
    assert matrix.letter(matrix.cell("numpy", "torch")) == "H"
    assert matrix.cell("numpy", "pyclesperanto").device == "opencl:0"
    assert matrix.letter(matrix.cell("pyclesperanto", "cupy")) == "D+U"
    assert matrix.cell("pyclesperanto", "tensorflow").copies == 2 == matrix.cell("pyclesperanto", "cupy").copies
    assert matrix.cell("pyclesperanto", "numpy").copies == 1
    with pytest.raises(DeviceUnavailable):
        matrix.cell("torch", "cupy", device="cpu")
    with pytest.raises(UnsupportedDtype, match="narrow int64 to int32"):
        matrix.cell("numpy", "pyclesperanto", dtype="int64")
    narrowed = matrix.cell("numpy", "pyclesperanto", dtype="int64", allow_downcast=True)
    assert (narrowed.dtype, narrowed.copies) == ("int32", 2)
    managed = matrix.ordinary("cupy", notes=("relabelled: managed memory is shown as the GPU's",))
    assert planner.plan(managed, matrix.caps_of("torch", True)).notes[0].startswith("relabelled")


def test_tables_are_aligned():
    assert tables.markdown(["a", "bb"], [["ccc", "d"]]) == "| a   | bb |\n| --- | -- |\n| ccc | d  |"


def test_doctor_tells_of_host_and_frameworks():
    status, out, err = ask("doctor", "--output", "json", "numpy", "torch", "tensorflow", "jax", "cupy", "numba.cuda")
    found = {each["what"]: each for each in json.loads(out)}
    assert {"kernel", "huge pages", "import name", "broker", *("numpy", "torch", "tensorflow", "jax")} <= set(found), err
    assert found["import name"]["finding"].startswith("arraybridge is arraybridged ")
    for name in ("numpy", "torch", "tensorflow", "jax"):
        assert found[name]["health"] == "ok" and "DLPack" in found[name]["finding"], found[name]
    assert found["broker"]["health"] == "note", "one starts by itself"
    missing = [name for name in ("cupy", "numba.cuda") if importlib.util.find_spec(name.partition(".")[0]) is None]
    for name in missing:
        extra = name.partition(".")[0]
        assert found[name] == {"what": name, "health": "note", "finding": "not installed", "mend": adapters.pip_install(extra)}
        assert "arraybridged" not in found[name]["mend"] and f"'{extra}" in found[name]["mend"]
    assert status == int(any(each["health"] == "problem" for each in found.values()))
    assert re.search(r"^numpy +ok", ask("doctor", "numpy")[1], re.MULTILINE)
    status, _, err = ask("doctor", "nump")
    assert status == 1 and "unknown frameworks: nump; choose from numpy, " in err


def test_doctor_asks_the_broker_of_an_address(tmp_path):
    status, out, _ = ask("doctor", "numpy", "--address", str(tmp_path), "-o", "json")
    found = {each["what"]: each for each in json.loads(out)}
    assert status == 1 and found["broker"]["health"] == "problem"
    assert found["lifeline.sock"]["mend"] == f"arraybridged --directory {tmp_path}"


def test_doctor_finds_a_foreign_package_of_our_name(tmp_path):
    """Another distribution that brings `arraybridge`, as the published line 0.2 does."""
    info = tmp_path / "arraybridge-0.2.11.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: arraybridge\nVersion: 0.2.11\n")
    (info / "top_level.txt").write_text("arraybridge\n")
    (info / "RECORD").write_text("arraybridge/__init__.py,,\n")
    status, out, _ = ask("doctor", "numpy", "-o", "json", PYTHONPATH=str(tmp_path))
    found = {each["what"]: each for each in json.loads(out)}
    assert status == 1 and found["import name"]["health"] == "problem"
    assert found["import name"]["mend"].startswith("pip uninstall -y arraybridge && ")


def test_doctor_says_that_an_import_fails(tmp_path):
    (tmp_path / "cupy.py").write_text("raise OSError('libcublas.so.12 is missing')")
    _, out, _ = ask("doctor", "cupy", "-o", "json", PYTHONPATH=str(tmp_path))
    found = {each["what"]: each for each in json.loads(out)}
    assert found["cupy"]["health"] == "problem" and "libcublas.so.12 is missing" in found["cupy"]["finding"]


def test_doctor_says_that_a_version_is_too_old(tmp_path):
    """Of a JAX of another version that is the same otherwise."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif any('findings.tell' in word for word in sys.orig_argv):\n    import jax\n    jax.__version__ = '0.5.2'\n"
    )
    status, out, _ = ask("doctor", "jax", "numpy", "-o", "json", PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}")
    found = {each["what"]: each for each in json.loads(out)}
    assert status == 1 and found["jax"]["health"] == "problem" and found["numpy"]["health"] == "ok"
    assert found["jax"]["finding"] == "0.5.2 is older than 0.5.3, the oldest version that is tested"
    assert found["jax"]["mend"] == "pip install 'jax>=0.5.3'"


def test_doctor_knows_the_oldest_version_of_every_framework():
    oldest = {name: findings.oldest_of(name) for name in findings._ARRAYS}
    assert oldest["numpy"] == "1.26.4" and oldest["torch"] == "2.4.1" and all(oldest.values()), oldest
