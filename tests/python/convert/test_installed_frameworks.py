# SPDX-License-Identifier: Apache-2.0
"""What has to hold with every set of frameworks that the package's metadata permits: runs over those installed here.

`tests/run --only environments` runs it with the oldest ones, `--only python` with the newest.
"""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from processes import FRAMEWORKS, environment

import arraybridge
from arraybridge import adapters, convert_memory
from arraybridge.commands import samples
from arraybridge.planner import COMMON

INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]


def frozen(array):
    array.flags.writeable = False
    return array


def read_only_arrays():
    """Read-only ndarrays of all the forms that NumPy hands out, and one of every dtype."""
    values = np.arange(24, dtype="f4").reshape(4, 6)
    return {
        "owner": frozen(values.copy()),
        "broadcast": np.broadcast_to(np.float32(3), (4, 6)),
        "broadcast_row": np.broadcast_to(np.arange(6), (4, 6)),
        "columns": frozen(values.copy()[:, 1:4]),
        "reversed": frozen(values.copy()[::-1]),
        "fortran": frozen(np.asfortranarray(values)),
        "scalar": frozen(np.array(5, "i2")),
        "empty": frozen(np.empty((0, 3))),
        "bytes": np.frombuffer(b"0123456789", "u1"),
        "structured": frozen(np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])),
        "datetime": frozen(np.array(["2020-01-01", "NaT"], "datetime64[s]")),
        **{dtype: frozen(np.ones((2, 3), dtype)) for dtype in sorted(COMMON)},
    }


@pytest.mark.parametrize("form", read_only_arrays())
def test_read_only_arrays_are_put(broker, form):
    array = read_only_arrays()[form]
    broker.put(array, "a")
    got = broker.get("a")
    assert got.dtype == array.dtype and got.shape == array.shape and got.tobytes() == array.tobytes()
    assert not got.flags.writeable or not got.size  # NumPy forgets it where there is nothing to write to


@pytest.mark.parametrize("framework", INSTALLED)
def test_a_result_of_get_is_put_again(broker, framework):
    values = np.arange(12, dtype="i4").reshape(3, 4)
    broker.put(values, "x")
    again = broker.put(broker.get("x", framework))
    assert (broker.get(again) == values).all()


@pytest.mark.parametrize("target", INSTALLED)
@pytest.mark.parametrize("source", INSTALLED)
def test_every_pair_keeps_values_dtype_and_shape(broker, source, target):
    for dtype in ("float32", "int32", "uint8", "float64", "bool"):
        values = (np.arange(6) % 2).astype(dtype).reshape(2, 3)
        if dtype == "float64" and "jax" in (source, target):
            continue  # without x64 it has none
        array = convert_memory(values, "numpy", source, None, copy=True)
        converted = convert_memory(array, source, target, None)
        got = broker.put(array).to(target)
        for result in (converted, got, convert_memory(array, None, target, None, copy=True)):
            assert arraybridge.detect_memory_type(result) == target
            back = convert_memory(result, target, "numpy", None)
            assert back.dtype == values.dtype and back.shape == values.shape and (back == values).all()


@pytest.mark.parametrize("form", ["owner", "broadcast", "columns", "reversed", "fortran", "scalar", "bytes"])
@pytest.mark.parametrize("target", INSTALLED)
def test_read_only_arrays_are_converted(target, form):
    array = read_only_arrays()[form]
    for copy in (None, True):
        result = convert_memory(array, "numpy", target, None, copy=copy)
        back = convert_memory(result, target, "numpy", None)
        assert back.dtype == array.dtype and back.tobytes() == array.tobytes() and back.shape == array.shape


def test_a_view_of_read_only_memory_is_read_only():
    view = arraybridge.asdlpack(frozen(np.arange(6)))
    assert view.read_only and view.shape == (6,)
    assert not arraybridge.asdlpack(np.arange(6)).read_only


def test_selftest_finds_nothing_wrong():
    names = [*INSTALLED, *samples.installed(("pyclesperanto", "pyarrow"))]
    done = subprocess.run(
        [sys.executable, "-m", "arraybridge", "selftest", *names], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and f"{len(names) ** 2} pair" in done.stdout and "0 failed" in done.stdout, done.stdout


@pytest.mark.parametrize("name", INSTALLED)
def test_every_framework_can_be_imported(name):
    assert adapters.ensure_module(name).__version__


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_scipys_sparse_arrays_come_back(broker, layout):
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not among the packages of this environment")
    dense = np.diag(np.arange(1.0, 5.0)) + np.eye(4, k=1)
    broker.put(sparse.csr_array(dense).asformat(layout), "m")
    got = broker.get("m")
    assert got.format == layout and (got.toarray() == dense).all()
