# SPDX-License-Identifier: Apache-2.0
"""CuPy's sparse arrays on the simulated GPU, by a module of its dialect: ``sparse_gpu_program.py ADDRESS NAME``."""

import sys
from typing import Any

import numpy as np
import scipy.sparse
from fakes import frameworks, gpu, own_copies

import arraybridge
from arraybridge.errors import UnsupportedArray

DENSE = np.array([[0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 4, 0]], "f4")


def on_gpu(values: Any) -> Any:
    return frameworks.CupyArray.of(np.asarray(values))


def of_cupy(format: str) -> Any:
    """DENSE as one of CuPy's."""
    own = getattr(scipy.sparse, f"{format}_array")(DENSE)
    kind = getattr(sys.modules["cupyx.scipy.sparse"], f"{format}_matrix")
    if format == "coo":
        return kind((on_gpu(own.data), tuple(on_gpu(each) for each in own.coords)), own.shape)
    return kind((on_gpu(own.data), on_gpu(own.indices), on_gpu(own.indptr)), own.shape)


def dense(array: Any) -> Any:
    """Of CuPy's."""
    make = getattr(scipy.sparse, f"{array.format}_array")
    if array.format == "coo":
        return make((array.data.values(), (array.row.values(), array.col.values())), array.shape).todense()
    return make((array.data.values(), array.indices.values(), array.indptr.values()), array.shape).todense()


def cupys_are_shared_part_by_part(broker: arraybridge.Broker) -> None:
    for format in ("csr", "csc", "coo"):
        array = of_cupy(format)
        broker.put({"m": array}, format)
        got, plan = broker.get(format, "cupy", explain=True)
        assert type(got["m"]) is type(array) and (dense(got["m"]) == DENSE).all()
        assert plan.zero_copy and plan.device == "cuda:0" and got["m"].data.on_gpu, plan
        assert got["m"].data.address != array.data.address, "the broker's"
        assert broker.convert(array, "cupy") is array and arraybridge.convert_memory(array, "cupy", "cupy", 0) is array
    starts, indices, values, shape = broker.convert(of_cupy("csr"), "torch", copy=False)
    assert isinstance(starts, frameworks.TorchTensor) and starts.on_gpu and shape == (3, 4)
    taken = of_cupy("csr")
    _, indices, values, _ = arraybridge.convert_memory(taken, "cupy", "torch", 0)
    assert (indices.address, values.address) == (taken.indices.address, taken.data.address)
    assert np.asarray(values.values()).tolist() == [1, 2, 3, 4]
    try:
        broker.put(sys.modules["cupyx.scipy.sparse"].dia_matrix((on_gpu([1.0]), on_gpu(np.int32([0])), on_gpu(np.int32([0]))), (1, 1)))
    except UnsupportedArray as refused:
        assert "the sparse format dia (dia_matrix) is not supported" in str(refused)
    else:
        raise AssertionError("a form of no layout was put")


def between_host_and_gpu(broker: arraybridge.Broker) -> None:
    for format in ("csr", "csc", "coo"):
        own = getattr(scipy.sparse, f"{format}_array")(DENSE)
        broker.put(own, f"host-{format}")
        there, plan = broker.get(f"host-{format}", "cupy", explain=True)
        assert (dense(there) == DENSE).all() and there.data.on_gpu and plan.via == "h2d", plan
        back = arraybridge.convert_memory(of_cupy(format), "cupy", "numpy")
        assert isinstance(back, scipy.sparse.spmatrix) and (back.todense() == DENSE).all()
        broker.put(of_cupy(format), f"gpu-{format}")
        assert (broker.get(f"gpu-{format}").todense() == DENSE).all()
    wide = scipy.sparse.csr_array(DENSE)
    wide.indptr, wide.indices = wide.indptr.astype("i8"), wide.indices.astype("i8")
    narrow, plan = broker.convert(wide, "cupy", explain=True)
    assert (dense(narrow) == DENSE).all() and any("indices are int32" in reason for reason in plan.reasons), plan
    try:
        broker.convert(scipy.sparse.coo_array((np.ones(1), ([1], [1], [1])), shape=(2, 2, 2)), "cupy")
    except UnsupportedArray as refused:
        assert "(2, 2, 2)" in str(refused)
    else:
        raise AssertionError("CuPy has no sparse arrays of three dimensions")


def a_gpus_indices_are_checked(broker: arraybridge.Broker) -> None:
    bad = of_cupy("csr")
    bad.indices = on_gpu(np.array([0, 1, 2, 4], "i4"))
    broker.put([bad], "bad")
    for target in ("cupy", "numpy"):
        try:
            broker.get("bad", target)
        except UnsupportedArray as refused:
            assert "[0]: " in str(refused) and "not in 0 to 3" in str(refused)
        else:
            raise AssertionError("a reader was led outside")


if __name__ == "__main__":
    where, name = sys.argv[1:]
    gpu.start()
    frameworks.install()
    own_copies.install()
    with arraybridge.Broker(where, namespace=name, start="never") as made:
        globals()[name](made)
    print("done")
