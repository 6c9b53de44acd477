# SPDX-License-Identifier: Apache-2.0
"""The published names and module paths: what resolves, what `import *` brings, what is no enum of strings."""

import importlib
import os
import pickle
import re
import subprocess
import sys

import pytest
from processes import ROOT, run_client

import arraybridge
from arraybridge import MemoryType

# Names beside the adapters' and Broker's, as the specification lists them.
PUBLISHED = """
Broker Share Plan Converted convert convert_memory Converter get_converter detect_memory_type MemoryType CPU_MEMORY_TYPES
GPU_MEMORY_TYPES SUPPORTED_MEMORY_TYPES VALID_MEMORY_TYPES VALID_GPU_MEMORY_TYPES MEMORY_TYPE_NUMPY MEMORY_TYPE_CUPY
MEMORY_TYPE_TORCH MEMORY_TYPE_TENSORFLOW MEMORY_TYPE_JAX MEMORY_TYPE_PYCLESPERANTO asdlpack View MemoryConversionError
InvalidMemoryType SourceTypeMismatch FrameworkNotAvailable DeviceUnavailable InvalidDevice UnsupportedDtype
UnsupportedArray ZeroCopyUnavailable BrokerError ShareNotFound ShareExists OutOfMemory PermissionDenied
BrokerUnavailable BrokerTimeout InvalidRequest DeviceFallbackWarning CopyWarning memory_types DtypeConversion
stack_slices unstack_slices process_slices SCALING_FUNCTIONS scale_dtype cleanup_all_gpu_frameworks cleanup_numpy_gpu
cleanup_cupy_gpu cleanup_torch_gpu cleanup_tensorflow_gpu cleanup_jax_gpu cleanup_pyclesperanto_gpu
MEMORY_TYPE_CLEANUP_REGISTRY is_oom_error clear_cache execute_with_oom_recovery optional_import ensure_module
supports_dlpack supports_cuda_array_interface get_device_id array_namespace capturing
""".split()
DECORATORS = ("numpy", "cupy", "torch", "tensorflow", "jax", "pyclesperanto")
ALIASES = {
    "convert": "convert convert_memory Converter get_converter",
    "converters": "convert_memory Converter detect_memory_type",
    "converters_registry": "get_converter",
    "types": "MemoryType DtypeConversion VALID_MEMORY_TYPES GPU_MEMORY_TYPES MEMORY_TYPE_JAX",
    "exceptions": "MemoryConversionError InvalidMemoryType",
    "dtype_scaling": "SCALING_FUNCTIONS scale_dtype",
    "stack_utils": "stack_slices unstack_slices _is_2d _is_3d",
    "slice_processing": "process_slices",
    "gpu_cleanup": "cleanup_all_gpu_frameworks cleanup_torch_gpu MEMORY_TYPE_CLEANUP_REGISTRY",
    "oom_recovery": "_execute_with_oom_recovery _is_oom_error _clear_cache_for_memory_type execute_with_oom_recovery",
    "utils": "_ensure_module _supports_dlpack _supports_cuda_array_interface _get_device_id optional_import",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_name_is_there_and_in_all(name):
    assert getattr(arraybridge, name) is not None and name in arraybridge.__all__


@pytest.mark.parametrize("module", ["detect", "errors", "compat.cleanup"])
def test_the_package_publishes_what_these_modules_do(module):
    names = importlib.import_module(f"arraybridge.{module}").__all__
    assert set(names) <= set(arraybridge.__all__) and len(set(names)) == len(names)
    home = {"detect": "types", "errors": "exceptions", "compat.cleanup": "gpu_cleanup"}[module]
    assert set(names) <= set(importlib.import_module(f"arraybridge.{home}").__all__)


def test_decorators_are_importable_and_not_in_all():
    from arraybridge import cupy, jax, numpy, pyclesperanto, tensorflow, torch

    for decorator in (cupy, jax, numpy, pyclesperanto, tensorflow, torch):
        assert decorator.__module__ == "arraybridge.decorators" and decorator.__name__ in DECORATORS
    assert not set(DECORATORS) & set(arraybridge.__all__)
    assert set(DECORATORS) <= set(dir(arraybridge))


def test_completion_has_public_names_alone():
    assert {name for name in dir(arraybridge) if not name.startswith("_")} == {*arraybridge.__all__, *DECORATORS}
    for of in (arraybridge.Broker, arraybridge.Share, arraybridge.Channel, arraybridge.Bundle, arraybridge.Watch):
        undocumented = {name for name in dir(of) if not name.startswith("_") and not getattr(of, name).__doc__}
        assert undocumented == set(), of


def test_help_of_the_package_says_where_to_begin_and_is_short():
    shown = run_client("import arraybridge; help(arraybridge)")
    lines = shown.splitlines()
    assert len(lines) < 130, "without the classes and what they inherit"
    assert "    Broker  " in shown and "Method resolution order" not in shown
    text = arraybridge.__doc__
    named = {name for name in re.findall(r"\b\w+\b", text) if name in arraybridge.__all__}
    assert named >= {"Broker", "Share", "Channel", "Watch", "Bundle", "convert", "convert_memory", "load", "save", "BrokerError"}
    assert "Broker" in dir(arraybridge)
    whole = run_client("import arraybridge; help(arraybridge.Share)")
    assert "metadata" in whole and "The user's own bytes." in whole


def test_convert_stays_a_function_if_its_module_is_imported():
    run_client(
        "import pickle, arraybridge\n"
        "first = arraybridge.convert\n"
        "import arraybridge.convert\n"
        "from arraybridge.convert import Converter, convert_memory\n"
        "from arraybridge import convert\n"
        "assert first is convert is arraybridge.convert is pickle.loads(pickle.dumps(convert))"
    )


def test_the_version_is_the_one_of_the_project():
    text = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"project\(arraybridge VERSION ([0-9.]+)", text)
    assert version is not None and arraybridge.__version__ == version[1]
    assert run_client("import arraybridge; print(arraybridge.__version__)") == f"{version[1]}\n"
    assert "__version__" not in arraybridge.__all__ and "__version__" in dir(arraybridge)


def test_a_star_import_shadows_no_framework():
    run_client(
        "import numpy\nfrom arraybridge import *\nassert numpy.ones(1)[0] == 1 and 'torch' not in dir()\nassert convert_memory and Broker"
    )


@pytest.mark.parametrize("module", ALIASES)
def test_module_paths_of_existing_code_resolve_and_have_no_logic(module):
    found = importlib.import_module(f"arraybridge.{module}")
    for name in ALIASES[module].split():
        assert getattr(found, name) is not None
    for name in found.__all__:
        home = getattr(found, name)
        assert getattr(home, "__module__", "arraybridge.") != f"arraybridge.{module}"
    assert "def " not in (ROOT / "python" / "arraybridge" / f"{module}.py").read_text()


@pytest.mark.parametrize(
    "module",
    [*ALIASES, "conversion", "decorators", "dlpack", "serialization", "compat.scaling", "compat.stacking", "compat.cleanup",
     "array_api"],
)  # fmt: skip
def test_importing_a_module_imports_no_framework(module):
    run_client(
        f"import sys, arraybridge.{module}\n"
        "assert not {'numpy', 'torch', 'tensorflow', 'jax', 'cupy', 'array_api_compat'} & set(sys.modules)"
    )


def test_a_member_is_its_string():
    for member in MemoryType:
        assert member == member.value and hash(member) == hash(member.value) and f"{member}" == str(member) == member.value
        assert MemoryType(member.value) is member is pickle.loads(pickle.dumps(member))
        assert member.value in arraybridge.VALID_MEMORY_TYPES and member.value in arraybridge.SUPPORTED_MEMORY_TYPES
        assert getattr(arraybridge, f"MEMORY_TYPE_{member.name}") == member
    assert all(type(each) is str for each in arraybridge.VALID_MEMORY_TYPES | arraybridge.VALID_GPU_MEMORY_TYPES)
    assert "numpy" in arraybridge.CPU_MEMORY_TYPES and "numpy" not in arraybridge.GPU_MEMORY_TYPES
    assert len(arraybridge.GPU_MEMORY_TYPES) == 5 == len(arraybridge.VALID_GPU_MEMORY_TYPES)
    with pytest.raises(ValueError):
        MemoryType("invalid")


# What a user's program is told by mypy --strict: (expression, what is revealed).
TYPES = (
    ('convert_memory(1, None, "numpy")', "numpy.ndarray"),
    ('convert_memory(1, "torch", MemoryType.NUMPY, gpu_id=None, copy=False)', "numpy.ndarray"),
    ('convert(1, "torch")', "torch._tensor.Tensor"),
    ('convert(1, MemoryType.NUMPY, device="cpu", copy=False)', "numpy.ndarray"),
    ("convert(1, name)", "Any"),
    ("convert_memory(1, None, name)", "Any"),
    ('convert_memory(1, None, "torch")', "torch._tensor.Tensor"),
    ('broker.get("a")', "numpy.ndarray"),
    ('broker.get("a", "torch", wait=1.5, access="shared")', "torch._tensor.Tensor"),
    ('broker.get("a", MemoryType.JAX, copy=True)', "jax"),
    ('broker.get("a", "torch", explain=True)', "tuple[Any, arraybridge.planner.Plan, fallback=arraybridge.planner.Converted]"),
    ('broker.get("a", name)', "Any"),
    ('broker.convert([1], "torch")', "Any"),
    ('broker.convert(1, "torch", progress=print)', "torch._tensor.Tensor"),
    ('broker.convert(1, "numpy", explain=True)', "tuple[Any, arraybridge.planner.Plan, fallback=arraybridge.planner.Converted]"),
    ('broker.convert(1, name, device="cpu")', "Any"),
)
REFUSED = ("convert_memory(1, None, 5)", 'broker.get("a", 5)', 'broker.get("a", "torch", waits=1)', 'broker.convert(1, "jax", copy=1)')
STUBS = {
    "torch/__init__.pyi": "from torch._tensor import Tensor as Tensor",
    "torch/_tensor.pyi": "class Tensor: ...",
    "jax/__init__.pyi": "class Array: ...",
}


def test_targets_have_their_own_types_for_type_checkers(tmp_path):
    """Without ARRAYBRIDGE_LONG with the classes of torch and JAX alone: to read all of them takes mypy half a minute."""
    if not os.environ.get("ARRAYBRIDGE_LONG"):
        for file, text in STUBS.items():
            stub = tmp_path / "stubs" / file
            stub.parent.mkdir(parents=True, exist_ok=True)
            stub.write_text(text)
    program = tmp_path / "program.py"
    begin = "from arraybridge import Broker, MemoryType, convert, convert_memory\nbroker, name = Broker(), str()\n"
    reveals = [f"reveal_type({expression})" for expression, _ in TYPES]
    program.write_text(begin + "\n".join([*reveals, *REFUSED]))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / "build/mypy"), str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(tmp_path / "stubs")},
    )
    notes = [line.partition('Revealed type is "')[2] for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(notes) == len(TYPES), done.stdout + done.stderr
    for (expression, told), note in zip(TYPES, notes, strict=True):
        assert note.startswith(told), (expression, note)
    first = len(TYPES) + 3
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}
    assert lines == set(range(first, first + len(REFUSED))), done.stdout
