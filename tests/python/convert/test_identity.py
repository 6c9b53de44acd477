# SPDX-License-Identifier: Apache-2.0
"""An array that is wanted as what it is, where it is, is given back itself: also one that nobody else could be handed."""

import jax
import numpy as np
import pytest
import tensorflow as tf
import torch
from torch_forms import FORMS

import arraybridge
from arraybridge import UnsupportedArray, UnsupportedDtype, convert_memory

NOBODY = arraybridge.Broker("/nonexistent", start="never")


def int64_of_jax():
    with jax.enable_x64(True):
        return jax.numpy.arange(3, dtype="int64")


ALONE = {
    "jax int64 without x64": ("jax", int64_of_jax),
    "jax int4": ("jax", lambda: jax.numpy.zeros(3, "int4")),
    "jax key": ("jax", lambda: jax.random.key(0)),
    "tensorflow string": ("tensorflow", lambda: tf.constant(["a"])),
    "numpy longdouble": ("numpy", lambda: np.zeros(3, np.longdouble)),
    "numpy object": ("numpy", lambda: np.array([object()])),
    "numpy str": ("numpy", lambda: np.array(["abc"])),
    "numpy masked": ("numpy", lambda: np.ma.array([1], mask=[1])),
    "torch sparse": ("torch", lambda: torch.eye(3).to_sparse()),
    "torch quantized": ("torch", lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)),
    **{f"torch {word}": ("torch", make) for word, (make, _) in FORMS.items()},
}


@pytest.mark.filterwarnings("ignore::arraybridge.DeviceFallbackWarning")
@pytest.mark.parametrize("case", ALONE)
@pytest.mark.parametrize("copy", [None, False])
def test_it_is_the_same_object(case, copy):
    framework, make = ALONE[case]
    array = make()
    assert NOBODY.convert(array, framework, copy=copy) is array
    assert NOBODY.convert({"a": [array]}, framework, copy=copy)["a"][0] is array
    assert NOBODY.plan(array, framework, copy=copy).route == "identity"
    if case != "torch throwing function":  # says of nothing where it is
        assert convert_memory(array, framework, framework, None, copy=copy) is array
        assert convert_memory(array, framework, framework, copy=copy) is array
        assert NOBODY.convert(array, framework, device="cpu", copy=copy) is array


# Its parts have memory, so that a copy is possible.
@pytest.mark.parametrize("case", [case for case in ALONE if case != "torch sparse"])
def test_a_copy_of_it_is_refused(case):
    framework, make = ALONE[case]
    for ask in (
        lambda: NOBODY.convert(make(), framework, copy=True),
        lambda: convert_memory(make(), framework, framework, None, copy=True),
    ):
        with pytest.raises((UnsupportedArray, UnsupportedDtype)) as caught:
            ask()
        assert (caught.value.source_type, caught.value.target_type) == (framework, framework)


def test_what_is_nowhere_is_on_no_device_that_is_asked_for():
    nowhere = torch.ones(3, device="meta")
    assert NOBODY.convert(nowhere, "torch", explain=True).plan.device == "unknown"
    for ask in (
        lambda: NOBODY.convert(nowhere, "torch", device="cpu"),
        lambda: convert_memory(nowhere, "torch", "torch", None),
    ):
        with pytest.raises(UnsupportedArray, match="meta"):
            ask()


def test_a_tracer_stays_itself():
    @jax.jit
    def twice(x):
        assert NOBODY.convert(x, "jax") is x and convert_memory(x, "jax", "jax", None) is x
        return x * 2

    assert twice(jax.numpy.ones(2)).tolist() == [2, 2]


def test_an_identity_says_nothing_about_a_gradient_that_stays():
    plan = NOBODY.convert(torch.ones(2, requires_grad=True), "torch", explain=True).plan
    assert plan.route == "identity" and not plan.notes


def test_a_permitted_narrowing_is_none_that_is_demanded():
    array = int64_of_jax()
    assert NOBODY.convert(array, "jax", allow_downcast=True) is array


@pytest.mark.parametrize("framework", ["torch", "numpy", "jax", "tensorflow"])
def test_a_class_is_not_the_framework_whose_name_it_has(framework):
    class Raises:
        def __dlpack__(self, **_):
            raise RuntimeError("nothing to give")

        def __dlpack_device__(self):
            return 1, 0

    Raises.__name__ = framework
    with pytest.raises(UnsupportedArray, match=f"{__name__}.{framework}.*nothing to give"):
        NOBODY.convert(Raises(), framework)
