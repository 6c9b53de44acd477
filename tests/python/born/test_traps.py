# SPDX-License-Identifier: Apache-2.0
"""What the guide warns of: views from before a put reach its readers, and arrays in memory of others are copied."""

import importlib.util
import pickle
from typing import Any

import numpy as np
import pytest

from arraybridge import Broker

N = 1 << 17

needs_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")


@pytest.mark.parametrize("kind", ["slice", "buffer", pytest.param("tensor", marks=needs_torch)])
def test_a_view_from_before_the_put_reaches_readers(broker: Broker, kind: str) -> None:
    with broker.born("numpy"):
        array = np.ones(N)
    view: Any = array[:] if kind == "slice" else array.data
    if kind == "tensor":
        import torch

        view = torch.from_numpy(array)
    broker.put(array, "array")
    got = broker.get("array")
    assert not array.flags.writeable
    view[3] = 7.0
    assert got[3] == 7 and broker.get("array")[3] == 7


@pytest.mark.parametrize("kind", ["pickle", "frombuffer", pytest.param("tensor", marks=needs_torch)])
def test_an_array_in_memory_of_others_is_copied_and_stays_its_makers(broker: Broker, kind: str) -> None:
    source: np.ndarray[Any, Any] = np.arange(N, dtype=float)
    with broker.born("numpy"):
        if kind == "pickle":
            array = pickle.loads(pickle.dumps(source))
        elif kind == "frombuffer":
            array = np.frombuffer(bytearray(source.tobytes()))
        else:
            import torch

            array = torch.arange(N, dtype=torch.float64).numpy()
    broker.put(array, "array")
    got = broker.get("array")
    assert array.flags.writeable
    array[3] = -1
    assert np.array_equal(got, source)
