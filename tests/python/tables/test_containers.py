# SPDX-License-Identifier: Apache-2.0
"""Arrays and datasets of xarray both ways, datasets of HDF5 and zarr, and what is refused."""

import numpy as np
import pytest

from arraybridge import InvalidRequest, UnsupportedArray, UnsupportedDtype


@pytest.fixture
def xarray():
    return pytest.importorskip("xarray", reason="xarray is not installed")


def dataset(xarray):
    times = np.array(["2026-01-01", "2026-01-02"], "datetime64[ns]")
    return xarray.Dataset(
        {
            "heat": (("time", "place"), np.arange(6.0).reshape(2, 3), {"unit": "K", "range": [0.0, 5.0]}),
            "count": ("place", np.array([1, 2, 3], "i2")),
        },
        {"time": times, "place": ["a", "b", "ü"], "height": ("place", [1.0, 2.0, 3.0], {"unit": "m"}), "run": 7},
        {"title": "a test", "version": np.int64(3), "weights": np.ones(2)},
    )


def test_a_dataset_comes_back_the_same(broker, xarray):
    made = dataset(xarray)
    broker.put(made, "dataset")
    got = broker.get("dataset", "xarray")
    xarray.testing.assert_identical(got, made)
    assert "time" in got.indexes and got.sel(time="2026-01-02", place="b").heat == 4.0
    assert not got.heat.values.flags.writeable


def test_an_array_comes_back_the_same(broker, client, xarray):
    made = dataset(xarray).heat
    for name, each in (("heat", made), ("unnamed", made.rename(None)), ("one", made[0, 0])):
        broker.put(each, name)
        xarray.testing.assert_identical(broker.get(name, "xarray"), each)
    code = """import sys, arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
print(float(broker.get("heat", "xarray").sel(place="b").sum()), type(broker.get("heat")).__name__, broker.get("heat")["dims"])"""
    assert client(code, broker.namespace) == "5.0 Record ['time', 'place']\n"


def test_its_arrays_are_those_of_any_framework(broker, xarray):
    torch = pytest.importorskip("torch")
    values = dataset(xarray)[["count"]].drop_vars(["place", "height"])
    broker.put({"data": values, "n": 5}, "tree")
    got = broker.get("tree", "torch")
    assert torch.equal(got["data"]["variables"]["count"][1], torch.tensor([1, 2, 3], dtype=torch.int16)) and got["n"] == 5
    assert broker.get("tree", "xarray")["data"].identical(values)


def test_values_that_are_not_there_yet_are_refused(broker, xarray):
    pytest.importorskip("dask", reason="dask is not installed")
    with pytest.raises(UnsupportedArray, match=r"'(heat|height)' is not computed yet: call .compute\(\) first"):
        broker.put(dataset(xarray).chunk())


def test_python_objects_are_refused(broker, xarray):
    with pytest.raises(UnsupportedArray, match="'x' has Python objects"):
        broker.put(xarray.DataArray(np.array([{}, []], object), dims="y", name="x"))


def test_a_record_with_other_fields_is_refused(broker, monkeypatch, xarray):
    from arraybridge.tables import xarrays

    fields = [("name", "x"), ("values", np.ones(2))]
    monkeypatch.setattr(xarrays, "fields_of", lambda value: (xarrays.ARRAY, fields) if xarrays.is_labelled(value) else None)
    broker.put(dataset(xarray), "wrong")
    with pytest.raises(InvalidRequest, match="xarray:DataArray is invalid.*get it as 'numpy'"):
        broker.get("wrong", "xarray")


def test_a_dataset_of_hdf5_is_read_into_the_share(broker, tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    values = np.arange(24.0).reshape(4, 6)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["plain"] = values
        file["swapped"] = values.astype(">f4")
        file.create_dataset("packed", data=values, chunks=(2, 3), compression="gzip")
        file["one"], file["none"] = 5, np.zeros((0, 3))
        file["text"] = ["a", "b"]
        for name in ("plain", "swapped", "packed", "one", "none"):
            broker.put(file[name], name)
            got = broker.get(name)
            assert np.array_equal(got, file[name][...]) and got.dtype == file[name].dtype.newbyteorder("="), name
        assert np.array_equal(broker.convert(file["plain"], "numpy"), values)
        plan = broker.plan(file["plain"], "numpy")
        assert plan.copies == 1 and "array protocol: 1 copy" in plan.reasons[0]
        with pytest.raises(UnsupportedDtype):
            broker.put(file["text"])
        broker.put({"a": file["plain"], "b": 1}, "tree")
    assert np.array_equal(broker.get("tree")["a"], values)
    with pytest.raises(UnsupportedArray, match="its library cannot read it"):
        broker.put(closed(h5py, tmp_path))


def closed(h5py, folder):
    with h5py.File(folder / "data.h5") as file:
        return file["plain"]


def test_a_dataset_is_read_once(broker, tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    reads = []
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["plain"] = np.ones(1000)
        real = h5py.Dataset.read_direct
        monkeypatch.setattr(h5py.Dataset, "read_direct", lambda self, target: reads.append(target.ctypes.data) or real(self, target))
        monkeypatch.setattr(h5py.Dataset, "__getitem__", None)
        broker.put(file["plain"], "plain")
    assert len(reads) == 1 and broker.get("plain").sum() == 1000


def test_an_array_of_zarr_is_read_into_the_share(broker, tmp_path):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    values = np.arange(24, dtype="i4").reshape(4, 6)
    array = zarr.open_array(str(tmp_path / "data"), mode="w", shape=(4, 6), chunks=(3, 2), dtype="i4")
    array[...] = values
    broker.put(array, "array")
    assert np.array_equal(broker.get("array"), values)


def test_a_mapped_file_and_an_image(broker, tmp_path):
    mapped = np.memmap(tmp_path / "values", "f4", "w+", shape=(5,))
    mapped[:] = 3
    broker.put(mapped, "mapped")
    assert broker.get("mapped").tolist() == [3.0] * 5
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed").new("RGB", (4, 3), (1, 2, 3))
    broker.put(image, "image")
    assert broker.get("image").shape == (3, 4, 3) and broker.get("image")[0, 0].tolist() == [1, 2, 3]


class Sensor:
    """As objects of many libraries, it has `__array__` and nothing else."""

    def __init__(self, values, error=None):
        self.values, self.error, self.calls = values, error, 0

    def __array__(self, dtype=None, copy=None):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.values


def test_an_object_with_array_alone_is_copied_once(broker):
    for name, values in (("plain", np.arange(6.0).reshape(2, 3)), ("strided", np.arange(12)[::2]), ("none", np.zeros((0, 3), "i2"))):
        sensor = Sensor(values)
        broker.put({"sensor": sensor, "n": 1}, name)
        got = broker.get(name)["sensor"]
        assert np.array_equal(got, values) and got.dtype == values.dtype and sensor.calls == 1
    plan = broker.plan(Sensor(np.ones(3)), "numpy")
    assert plan.copies == 1 and "array protocol: 1 copy" in plan.reasons[0]
    assert broker.convert(Sensor(np.ones(3)), "numpy").tolist() == [1.0] * 3


def test_an_object_whose_array_cannot_be_shared_says_why(broker):
    with pytest.raises(UnsupportedArray, match="Sensor.*RuntimeError: not connected"):
        broker.put(Sensor(None, RuntimeError("not connected")))
    with pytest.raises(UnsupportedDtype):
        broker.put(Sensor(np.array([{}, None], object)))
    with pytest.raises(UnsupportedArray, match="mask"):
        broker.put(Sensor(np.ma.masked_array([1, 2], [True, False])))


def test_what_would_lose_something_stays_refused(broker):
    with pytest.raises(UnsupportedArray, match="mask"):
        broker.put(np.ma.masked_array([1, 2], [True, False]))
    dask = pytest.importorskip("dask.array", reason="dask is not installed")
    with pytest.raises(UnsupportedArray, match=r"pass array\.compute\(\)"):
        broker.put(dask.ones(3))
