# SPDX-License-Identifier: Apache-2.0
"""optional_import, ensure_module, supports_*, get_device_id: what is asked of modules and objects."""

import copy
import inspect
import pickle
import re
import shlex
import sys
import tomllib
import types
import typing

import numpy as np
import pytest
from processes import ROOT

import arraybridge
from arraybridge import (
    FrameworkNotAvailable,
    InvalidMemoryType,
    SourceTypeMismatch,
    UnsupportedArray,
    adapters,
    array_namespace,
    asdlpack,
    ensure_module,
    get_device_id,
    optional_import,
    supports_cuda_array_interface,
    supports_dlpack,
)


def test_a_module_that_is_there_is_itself():
    assert optional_import("numpy") is np is ensure_module("numpy")


def test_a_missing_module_is_a_falsy_name_that_raises_when_it_is_called():
    missing = optional_import("no_such_framework")
    assert not missing and not missing.ndarray and not missing.cuda.Device
    assert missing.cuda.Device == optional_import("no_such_framework").cuda.Device != missing
    assert repr(missing.cuda) == "<no_such_framework.cuda, not available>"
    for call in (missing, missing.zeros, missing.cuda.Device):
        with pytest.raises(FrameworkNotAvailable, match="not available: it is not installed") as caught:
            call(3, x=4)
        assert caught.value.name == "no_such_framework" and isinstance(caught.value, ImportError)

    def annotated(image: missing.ndarray) -> missing.ndarray: ...

    assert annotated.__annotations__["image"] == missing.ndarray


def test_placeholders_copy_pickle_and_inspect_sanely():
    missing = optional_import("no_such_framework").nested
    with pytest.raises(AttributeError, match="__wrapped__"):
        missing.__wrapped__
    for again in (copy.copy(missing), copy.deepcopy(missing), pickle.loads(pickle.dumps(missing))):
        assert again == missing and hash(again) == hash(missing)
    assert inspect.unwrap(missing) is missing and not inspect.isclass(missing)
    assert not supports_dlpack(missing) and arraybridge.detect_memory_type(missing) is None


def test_an_import_that_fails_by_itself_says_why(tmp_path, monkeypatch):
    (tmp_path / "broken_framework.py").write_text("raise OSError('libfoo.so.3: cannot open')")
    (tmp_path / "needs_other.py").write_text("import no_such_framework")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FrameworkNotAvailable, match=r"not available: its import failed: libfoo.so.3") as caught:
        optional_import("broken_framework").zeros(3)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(FrameworkNotAvailable, match="No module named 'no_such_framework'"):
        optional_import("needs_other").zeros(3)
    with pytest.raises(FrameworkNotAvailable, match="broken_framework is not available: libfoo"):
        ensure_module("broken_framework")


def test_old_modules_are_not_available(monkeypatch):
    for name, old in (("tensorflow", "2.11.1"), ("cupy", "12.3.0")):
        module = types.ModuleType(name)
        module.__version__ = old
        monkeypatch.setitem(sys.modules, name, module)
        with pytest.raises(FrameworkNotAvailable, match=f"{name} [0-9.]+ is not available: this is {old}"):
            ensure_module(name)
        module.__version__ = "99.0rc1"
        assert ensure_module(name) is module
        with pytest.raises(FrameworkNotAvailable, match="100.1 is not available"):
            ensure_module(name, (100, 1))


def test_protocols_are_looked_up_on_the_class():
    class Loud:
        def __getattribute__(self, name):
            raise RuntimeError("read")

    class Late:
        pass

    late = Late()
    late.__dlpack__ = late.__dlpack_device__ = late.__cuda_array_interface__ = None
    for nothing in (Loud(), late, [1], None, 5):
        assert not supports_dlpack(nothing) and not supports_cuda_array_interface(nothing)
    assert supports_dlpack(np.ones(1)) and supports_dlpack(asdlpack(b"x"))


def test_what_frameworks_support():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    jax = pytest.importorskip("jax", reason="jax is not installed")
    for array in (torch.ones(1), torch.ones(1, requires_grad=True), tf.constant(1.0), jax.numpy.ones(1)):
        assert supports_dlpack(array)
    assert supports_cuda_array_interface(torch.ones(1)) and not supports_cuda_array_interface(np.ones(1))


def test_arrays_on_the_host_have_no_gpu():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    jax = pytest.importorskip("jax", reason="jax is not installed")
    assert get_device_id(np.ones(1), "numpy") is None
    assert get_device_id(torch.ones(1), arraybridge.MemoryType.TORCH) is None
    assert get_device_id(jax.numpy.ones(1), "jax") is None
    with pytest.raises(SourceTypeMismatch, match="numpy, not torch"):
        get_device_id(np.ones(1), "torch")
    with pytest.raises(InvalidMemoryType):
        get_device_id(np.ones(1), "invalid")
    with pytest.raises(UnsupportedArray):
        get_device_id(torch.ones(1, device="meta"), "torch")


def test_the_array_api_of_an_array():
    pytest.importorskip("array_api_compat", reason="array-api-compat is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    jax = pytest.importorskip("jax", reason="jax is not installed")
    for array in (np.ones((2, 3)), torch.ones(2, 3), jax.numpy.ones((2, 3))):
        names = array_namespace(array, array)
        transposed = names.permute_dims(array, (1, 0))
        assert type(transposed) is type(array) and tuple(transposed.shape) == (3, 2)
        assert float(names.sum(transposed)) == 6
    for wrong in ((tf.constant(1.0),), (np.ones(1), torch.ones(1)), ([1],), ()):
        with pytest.raises(UnsupportedArray) as caught:
            array_namespace(*wrong)
        assert isinstance(caught.value, TypeError)


def test_without_array_api_compat_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(FrameworkNotAvailable, match="array_api_compat is not available"):
        array_namespace(np.ones(1))


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The oldest versions by distribution, of all that the metadata names but the tests' own.
OLDEST = {
    name: version
    for extra, requirements in {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items()
    for name, version in re.findall(r"([\w-]+)>=([\d.]+)", " ".join(requirements))
}
# Without a driver CuPy does nothing: tests/simulated_cuda/frameworks has an environment with a simulated one.
WITHOUT_AN_ENVIRONMENT = {"cupy-cuda12x"}


@pytest.mark.parametrize("name", adapters.VERSIONS_MIN)
def test_an_extra_installs_what_its_adapter_takes(name):
    """`pip install ".[NAME]"` must not bring a version that is refused afterwards."""
    (oldest,) = {version for each, version in OLDEST.items() if each in (name, f"{name}-cpu", f"{name}-cuda12x")}
    assert not adapters.is_older(oldest, adapters.VERSIONS_MIN[name])


def test_nothing_recommends_a_package_that_no_index_has():
    """The distribution is built from a clone; an index has another one with the import name."""
    recommends = re.compile(r"pip install [^`\n]*\barraybridged?\b(?!\.)")
    folders = ("python", "client", "daemon", "deploy")
    found = [
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so") and recommends.search(path.read_text(errors="ignore"))
    ]
    assert found == []


@pytest.mark.parametrize("name", sorted(adapters.NAMES))
def test_the_advice_for_a_missing_framework_names_packages_of_our_metadata(name):
    (extra,) = {name} & set(PROJECT["optional-dependencies"]) or {""}
    wanted = PROJECT["optional-dependencies"].get(extra, [])
    assert adapters.packages_of(extra) == (wanted or PROJECT["dependencies"])
    said = f"pip install {shlex.join(wanted)}" if wanted else f"install {name}"
    with pytest.raises(FrameworkNotAvailable) as caught:
        adapters.Placeholder(f"{name}.module")()
    assert str(caught.value).rpartition("; ")[2].removeprefix("install it, for example with ").strip("`") == said


@pytest.mark.parametrize("name", sorted(OLDEST))
def test_the_oldest_version_that_the_metadata_names_is_tested(name):
    """`tests/run --only environments`, numba's by `--only frameworks`, those of clusters by `--only clusters`, mcap's by all."""
    if name in WITHOUT_AN_ENVIRONMENT:
        pytest.skip(f"{name} cannot be run without a GPU")
    folder = ROOT / "deploy/requirements"
    pages = [
        page.read_text()
        for page in (*folder.glob("oldest-*.txt"), *(folder / f"{each}.txt" for each in ("simulated_cuda", "clusters", "test")))
    ]
    pins = {pin for page in pages for each, pin in re.findall(r"^([\w-]+)==([\d.]+)$", page, re.MULTILINE) if each == name}
    assert any((pin + ".0.0").startswith(OLDEST[name] + ".") and not pin[len(OLDEST[name]) :].strip(".0") for pin in pins), pins


def test_placeholders_are_parts_of_unions():
    missing = optional_import("no_such_framework")

    def either(x: missing.ndarray | None, y: np.ndarray | missing.Tensor = None) -> None | missing.a | missing.b: ...

    hints = typing.get_type_hints(either)
    assert typing.get_args(hints["x"]) == (missing.ndarray, type(None))
    assert typing.get_args(hints["y"])[:2] == (np.ndarray, missing.Tensor)
    assert typing.get_args(hints["return"]) == (type(None), missing.a, missing.b)
    assert "ndarray" in str(inspect.signature(either))
