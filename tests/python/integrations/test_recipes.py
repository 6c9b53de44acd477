# SPDX-License-Identifier: Apache-2.0
"""Every block of recipes.md, models.md, pipelines.md and others in docs/guides runs. The recipes of published guides do what the guides
say."""

import itertools
import re
import runpy
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pytest
from processes import ROOT, environment

import arraybridge
from arraybridge import MemoryConversionError, asdlpack, convert_memory, detect_memory_type

torch = pytest.importorskip("torch", reason="torch is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")

pytestmark = [pytest.mark.filterwarnings("ignore::arraybridge.DeviceFallbackWarning"), pytest.mark.usefixtures("no_remembered_cupy")]
DOCS = ROOT / "docs/guides"
PAGES = "\n".join(
    (DOCS / page).read_text() for page in ("recipes.md", "models.md", "pipelines.md", "tables.md", "channels.md", "services.md")
)
BLOCKS = re.findall(r"<!-- run: (\w+) -->\n```python\n(.*?)```", PAGES, re.DOTALL)


def test_every_block_says_where_it_runs():
    assert len(BLOCKS) == PAGES.count("```python") > 8


@pytest.mark.parametrize("number", [n for n, (where, _) in enumerate(BLOCKS) if where == "host"])
def test_a_block_runs_on_the_host(number, address, tmp_path, monkeypatch):
    program = tmp_path / "recipe.py"
    program.write_text(BLOCKS[number][1])
    if "__main__" not in BLOCKS[number][1]:
        monkeypatch.setenv("ARRAYBRIDGE_ADDRESS", address)
        runpy.run_path(str(program))
        return
    # Its workers import it.
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=tempfile.gettempdir(),
        env=environment(ARRAYBRIDGE_ADDRESS=address),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_block_of_an_example_is_in_its_program():
    (block,) = [text for where, text in BLOCKS if where == "example"]
    assert block in (DOCS.parent / "examples/pipeline/invert.py").read_text().replace("        print(int(number), flush=True)\n", "")


def safe_convert(data, target):
    source = detect_memory_type(data)
    try:
        return convert_memory(data, source, target, gpu_id=0)
    except MemoryConversionError:
        return convert_memory(data, source, target, gpu_id=None)


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_safe_convert_succeeds_at_once_and_warns(target, monkeypatch):
    monkeypatch.setattr("arraybridge.conversion.memory.fallbacks", itertools.count())
    if torch.cuda.is_available():
        pytest.skip("needs a host without a GPU")
    with pytest.warns(arraybridge.DeviceFallbackWarning):
        assert detect_memory_type(safe_convert(np.ones(3, "f4"), target)) == target


def test_safe_convert_into_cupy_raises_twice_on_a_host_without_gpu():
    with pytest.raises(MemoryConversionError) as caught:
        safe_convert(np.ones(3), "cupy")
    assert isinstance(caught.value.__context__, MemoryConversionError)


def handled(data, target, gpu_id=0):
    """The three handlers by text."""
    try:
        convert_memory(data, "numpy", target, gpu_id)
    except MemoryConversionError as error:
        return "install" if "not available" in str(error) else "gpu" if "CUDA" in str(error) else "other"


def test_handlers_by_text(monkeypatch):
    assert handled(np.ones(1), "invalid") == "other"
    assert handled(np.ones(1), "torch", 99) == "gpu"
    if "cupy" not in sys.modules:
        assert handled(np.ones(1), "cupy") == "install"
    monkeypatch.setitem(sys.modules, "torch", None)
    unlike = np.ones((1,) * 7, "uint8")  # how arrays like earlier ones go into torch is known, without asking it again
    assert handled(unlike, "torch") == "install"


def test_cupy_without_a_gpu_says_cuda(monkeypatch):
    from types import ModuleType, SimpleNamespace

    def no_driver():
        raise RuntimeError("cudaErrorInsufficientDriver")

    cupy = ModuleType("cupy")
    cupy.__version__, cupy.cuda = "14.0.0", SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=no_driver))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert handled(np.ones(1), "cupy") == handled(np.ones(1), "cupy", None) == "gpu"


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_dtypes_survive_into_torch(dtype):
    assert str(convert_memory(np.ones(3, dtype), "numpy", "torch", None).dtype) == f"torch.{dtype}"


def test_gpu_none_is_the_cpu():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch_cpu = convert_memory(np.ones(3), "numpy", "torch", gpu_id=None)
    assert torch_cpu.device == torch.device("cpu")


def test_hello_as_six_codes():
    tensor = torch.from_dlpack(asdlpack(b"Hello!"))
    assert tensor.dtype == torch.uint8 and tensor.tolist() == [72, 101, 108, 108, 111, 33]


def test_writes_are_seen_on_both_sides():
    array = np.zeros(3)
    tensor = convert_memory(array, "numpy", "torch", None)
    tensor[0] = 1
    array[1] = 2
    assert array.tolist() == tensor.tolist() == [1, 2, 0]
    back = convert_memory(tensor, "torch", "numpy")
    back[2] = 3
    assert array.tolist() == [1, 2, 3]


def test_a_capsule_used_twice_fails_cleanly():
    capsule = np.ones(3).__dlpack__()
    assert torch.from_dlpack(capsule).sum() == 3
    with pytest.raises(BufferError):
        asdlpack(capsule)
    with pytest.raises(RuntimeError):
        torch.from_dlpack(capsule)
