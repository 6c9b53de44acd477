# SPDX-License-Identifier: Apache-2.0
"""Every value of every small dtype, through every framework that has it, bit for bit (cases 12, 14 and 60)."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch
from arrays import address_of

import arraybridge
from arraybridge import UnsupportedDtype, ZeroCopyUnavailable, adapters, convert_memory
from arraybridge.planner import CODES

pytestmark = pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")
SMALL = [name for name, (code, bits, _) in CODES.items() if bits == 8 or name in ("float16", "bfloat16", "int16", "uint16")]
FLOATS = [name for name in SMALL if "float" in name]
NOBODY_TAKES = ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "int4", "uint4", "int2", "uint2")


def every(name):
    """Each bit pattern once, as an ndarray; of bool its two."""
    width = CODES[name][1]
    count = 2 if name == "bool" else 2**width
    bits = np.arange(count, dtype=f"u{width // 8}")
    return bits.view(np.dtype(getattr(ml_dtypes, name, name)))


def bits_of(array):
    if isinstance(array, torch.Tensor):
        return array.reshape(-1).view(torch.uint8).numpy().tobytes()
    return np.asarray(array.numpy() if isinstance(array, tf.Tensor) else array).tobytes()


def holders(name):
    """The frameworks that have this dtype, by their own word."""
    has = {
        "numpy": True,
        "torch": hasattr(torch, name),
        "tensorflow": hasattr(tf.dtypes, name) or hasattr(tf.dtypes.experimental, name),
        "jax": hasattr(jax.numpy, name) or name == "bool",
    }
    return [framework for framework in FRAMEWORKS if has[framework]]


def test_the_frameworks_have_what_is_tested():
    assert len(FLOATS) == 10 and {"float8_e8m0fnu", "float8_e3m4", "bfloat16"} <= set(FLOATS)
    assert holders("float16") == holders("float8_e5m2") == list(FRAMEWORKS)
    assert "torch" in holders("float8_e8m0fnu") and "jax" in holders("float8_e3m4")


@pytest.mark.parametrize("name", SMALL)
def test_every_pattern_through_every_pair(broker, name):
    values = every(name)
    takers = [framework for framework in holders(name) if takes(framework, name)]
    assert {"numpy", *(["torch", "jax"] if name == "bfloat16" else [])} <= set(takers)
    for source in takers:
        held = broker.convert(values, source, copy=True)
        assert bits_of(held) == values.tobytes(), (name, source)
        for target in takers:
            for got in (
                broker.convert(held, target),
                broker.convert(held, target, copy=True),
                convert_memory(held, source, target, None),
                broker.put(held).to(target),
            ):
                assert arraybridge.detect_memory_type(got) == target
                assert name in str(got.dtype) and bits_of(got) == values.tobytes(), (name, source, target)
    assert values.tobytes() == every(name).tobytes()


def takes(framework, name):
    caps = adapters.named(framework).caps()
    return caps.takes(name) or name in caps.by_value


@pytest.mark.parametrize("name", FLOATS)
def test_who_does_not_have_it_refuses_by_name(broker, name):
    for target in FRAMEWORKS:
        if takes(target, name):
            assert target in holders(name), "nobody is promised what it lacks"
            continue
        with pytest.raises(UnsupportedDtype, match=name) as caught:
            broker.convert(every(name), target)
        assert (caught.value.source_type, caught.value.target_type) == ("numpy", target)


@pytest.mark.parametrize("name", NOBODY_TAKES)
def test_what_is_not_whole_bytes_is_refused_by_name(broker, name):
    sources = {"numpy": np.zeros(4, getattr(ml_dtypes, name))}
    if hasattr(jax.numpy, name) and not name.startswith("float6"):  # XLA has none on a CPU
        sources["jax"] = jax.numpy.zeros(4, name)
    for source, array in sources.items():
        for target in FRAMEWORKS:
            if source == target:
                assert broker.convert(array, target) is array
                continue
            for ask in (
                lambda array=array, target=target: broker.convert(array, target),
                lambda array=array, source=source, target=target: convert_memory(array, source, target, None),
            ):
                with pytest.raises(UnsupportedDtype, match=name) as caught:
                    ask()
                assert (caught.value.source_type, caught.value.target_type) == (source, target)
        with pytest.raises(UnsupportedDtype, match=name):
            broker.put(array)


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_bools_of_other_bytes_are_the_same_bytes_afterwards(broker, target):
    odd = np.array([0, 2, 255], np.uint8).view(bool)
    for copy in (None, True):
        got = broker.convert(odd, target, copy=copy)
        assert bits_of(got) == b"\0\2\xff"
        assert broker.convert(got, "numpy", copy=True).view(np.uint8).tolist() == [0, 2, 255]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("name", [name for name in FLOATS if name != "float16"])
def test_a_claim_of_zero_copy_is_an_equal_address_at_every_rank(broker, name, shape):
    values = np.resize(every(name), shape)
    takers = [framework for framework in holders(name) if takes(framework, name)]
    for source in takers:
        held = broker.convert(values, source, copy=True)
        hidden = source == "tensorflow" and name != "bfloat16" and shape == ()
        for target in takers:
            if source == target:
                continue
            for copy in (None, False):
                try:
                    got, plan = broker.convert(held, target, copy=copy, explain=True)
                except ZeroCopyUnavailable as refused:
                    assert copy is False and refused.plan.reasons
                    constant = source in ("tensorflow", "jax") and target == "torch"  # which would write to it
                    assert hidden or constant or target == "tensorflow", (source, target)
                    continue
                assert bits_of(got) == values.tobytes()
                assert tuple(got.shape) == shape and name in str(got.dtype)
                assert not (hidden and plan.zero_copy), plan
                addresses = address_of(got), address_of(held)
                assert (None in addresses) == (shape == () and name != "bfloat16" and "tensorflow" in (source, target))
                assert (addresses[0] == addresses[1]) == plan.zero_copy, (source, target, copy, plan)
