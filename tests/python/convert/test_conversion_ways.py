# SPDX-License-Identifier: Apache-2.0
"""The three ways of an array inside one process, each asked for: by DLPack, by the host, by bytes."""

from dataclasses import replace

import numpy as np
import pytest
import simulated

import arraybridge
from arraybridge import (
    InvalidRequest,
    UnsupportedArray,
    UnsupportedDtype,
    ZeroCopyUnavailable,
    convert_memory,
    planner,
)  # fmt: skip
from arraybridge.arrays import devices
from arraybridge.commands import matrix
from arraybridge.conversion import ways
from arraybridge.planner import CODES

HOST = ("numpy", "torch", "tensorflow", "jax")
VALUES = np.arange(6, dtype="f4").reshape(2, 3)
GPUS = ("GPU-0", "GPU-1")


def made(framework):
    if framework != "numpy":
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    return convert_memory(VALUES.copy(), "numpy", framework, None, copy=True)


def address(array):
    return arraybridge.asdlpack(array).address


@pytest.mark.parametrize("source", HOST)
@pytest.mark.parametrize("target", HOST)
def test_every_pair_in_every_way(broker, source, target):
    array = made(source)
    if target != "numpy":
        pytest.importorskip(target, reason=f"{target} is not installed")
    for via in ways.WAYS:
        for got, plan in (
            broker.convert(array, target, via=via, explain=True),
            (convert_memory(array, source, target, None, via=via), broker.plan(array, target, via=via)),
        ):
            assert arraybridge.detect_memory_type(got) == target and np.asarray(got).tolist() == VALUES.tolist()
            assert plan.via == via and plan.copied_bytes == plan.copies * VALUES.nbytes
            assert (address(got) == address(array)) == plan.zero_copy
            if via != "dlpack":
                assert plan.route == "place" and plan.copies == ways.WAYS.index(via)
    assert broker.plan(array, target).via in ("dlpack", "host")


def test_a_plan_is_never_without_its_way(broker):
    for on_gpu in (False, True):
        for source in (*HOST, "cupy", "pyclesperanto"):
            for target in (*HOST, "cupy", "pyclesperanto"):
                assert matrix.cell(source, target, on_gpu=on_gpu).via
    broker.put(VALUES, "s")
    assert broker.get("s", explain=True).plan.via == "host-shm"
    assert broker.convert(VALUES, "numpy", explain=True).plan.via == "dlpack"
    assert broker.convert([VALUES, VALUES[:, ::-1]], "torch", explain=True).plan.via == "host"


def test_shares_and_trees_go_the_way_that_was_asked_for(broker):
    share = broker.put(VALUES, "s")
    for via in ways.WAYS:
        got, plan = broker.convert(share, "numpy", via=via, explain=True)
        assert (got == VALUES).all() and plan.via == via
        got, plan = broker.convert({"a": [VALUES, 3]}, "numpy", via=via, explain=True)
        assert (got["a"][0] == VALUES).all() and got["a"][1] == 3 and plan.via == via


def test_what_went_by_the_host_or_by_bytes_is_private(broker):
    source = VALUES.copy()
    for via in ("host", "serialize"):
        for got in (convert_memory(source, "numpy", "numpy", via=via), broker.convert(source, "numpy", via=via)):
            got[...] = 9
    assert (source == VALUES).all()


def test_no_warning_says_what_was_asked_for(broker, recwarn):
    for via in ("host", "serialize"):
        made_plan = broker.convert(VALUES, "numpy", via=via, explain=True).plan
        assert made_plan.reasons == (f'way: via="{via}" copies (asked for)',)
    assert not recwarn.list


def test_structured_dtypes_go_where_a_way_leads(broker):
    source = np.zeros(3, [("a", "i4"), ("b", "f8")])
    source["a"] = 5
    for via in ("host", "serialize"):
        for got in (broker.convert(source, "numpy", via=via), convert_memory(source, "numpy", "numpy", via=via)):
            assert got.dtype == source.dtype and (got == source).all() and got is not source
    for call in (broker.convert, broker.plan):
        with pytest.raises(UnsupportedDtype, match="structured dtypes"):
            call(source, "numpy", copy=True, via="dlpack")


@pytest.mark.parametrize("via", ["host", "serialize"])
def test_ways_that_copy_contradict_copy_false(broker, via):
    for call in (
        lambda: broker.convert(VALUES, "numpy", copy=False, via=via),
        lambda: broker.convert(VALUES, "torch", require="zero-copy", via=via),
        lambda: convert_memory(VALUES, "numpy", "numpy", copy=False, via=via),
    ):
        with pytest.raises(ZeroCopyUnavailable, match=f'via="{via}" copies') as caught:
            call()
        assert caught.value.plan.via == via


@pytest.mark.parametrize("via", ["host", "serialize"])
def test_torch_itself_copies_what_requires_grad_and_the_plan_says_so(broker, via, recwarn):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    weight = torch.ones(3, requires_grad=True)
    got, plan = broker.convert(weight, "torch", via=via, explain=True)
    assert got.grad_fn is not None and got.data_ptr() != weight.data_ptr()
    assert convert_memory(weight, "torch", "torch", None, via=via).grad_fn is not None
    assert plan == broker.plan(weight, "torch", via=via)
    assert (plan.route, plan.via, plan.copies, plan.copied_bytes) == ("place", "host", 1, 12)
    assert plan.reasons == (f'way: torch itself copies what requires grad, not via="{via}" (asked for)',)
    with pytest.raises(ZeroCopyUnavailable, match="torch itself copies"):
        broker.plan(weight, "torch", via=via, copy=False)
    assert broker.plan(weight, "numpy", via=via).via == via, "no gradient is kept there"
    assert not recwarn.list


@pytest.mark.parametrize("via", ["", "bytes", "DLPACK", 1, True, ["host"]])
def test_what_is_no_way_is_refused(broker, via):
    for call in (
        lambda: broker.convert(VALUES, "numpy", via=via),
        lambda: broker.plan(VALUES, "numpy", via=via),
        lambda: convert_memory(VALUES, "numpy", "numpy", via=via),
    ):
        with pytest.raises(InvalidRequest, match="dlpack"):
            call()


def test_what_no_framework_can_do_is_refused_in_every_way(broker):
    for via in ways.WAYS:
        with pytest.raises(UnsupportedDtype):
            broker.plan(np.zeros(2, "M8[s]"), "torch", via=via)
        with pytest.raises(UnsupportedArray, match="mask"):
            broker.plan(np.ma.array([1], mask=[1]), "torch", via=via)


def test_a_narrowing_goes_every_way(broker):
    pytest.importorskip("jax", reason="jax is not installed")
    for via in ways.WAYS:
        got, plan = broker.convert(np.arange(3.0), "jax", allow_downcast=True, via=via, explain=True)
        assert got.dtype == "float32" and got.tolist() == [0, 1, 2] and plan.dtype == "float32"
        assert any("narrowed" in reason for reason in plan.reasons)


def planned(via, source, target, **wishes):
    array = wishes.pop("array", {})
    on_gpu = wishes.pop("on_gpu", True)
    described = matrix.ordinary(source, on_gpu, **array)
    return ways.planned(via, described, matrix.caps_of(target, on_gpu), gpus=GPUS, **wishes)


def test_cupy_to_tensorflow_three_ways():
    by_dlpack = planned("dlpack", "cupy", "tensorflow", device="cuda:0")
    assert (by_dlpack.route, by_dlpack.copies) == ("hand_over", 0)
    nbytes = matrix.ordinary("cupy", True).nbytes
    by_host = planned("host", "cupy", "tensorflow", device="cuda:0")
    assert (by_host.route, by_host.copies, by_host.copied_bytes) == ("place", 2, 2 * nbytes)
    by_bytes = planned("serialize", "cupy", "tensorflow", device="cuda:0")
    assert (by_bytes.route, by_bytes.copies, by_bytes.copied_bytes) == ("place", 3, 3 * nbytes)
    assert planned(None, "cupy", "tensorflow", device="cuda:0").via == "dlpack"


@pytest.mark.parametrize(
    ("source", "target", "wishes"),
    [
        ("cupy", "numpy", {}), ("numpy", "torch", {"device": "cuda:0"}), ("torch", "torch", {"device": "cpu"}),
        ("torch", "torch", {"device": "cuda:1", "reaches": lambda *_: False}),
        ("jax", "jax", {"array": {"dtype": "float64"}, "allow_downcast": True, "narrow": True}),
        ("numpy", "pyclesperanto", {"on_gpu": False}), ("pyclesperanto", "numpy", {"on_gpu": False}),
    ],
)  # fmt: skip
def test_dlpack_takes_no_trip_over_the_host(source, target, wishes):
    if wishes.pop("narrow", False):
        from arraybridge.adapters import jax

        described = matrix.ordinary(source, True, **wishes.pop("array"))
        caps = replace(jax.GPU_CAPS_WITHOUT_X64)
        with pytest.raises(UnsupportedArray, match='via="host"'):
            ways.planned("dlpack", described, caps, gpus=GPUS, copy=True, **wishes)
        return
    with pytest.raises(UnsupportedArray, match='via="host"') as caught:
        planned("dlpack", source, target, **wishes)
    assert caught.value.method == "dlpack" and caught.value.source_type == source


def test_a_copy_on_one_gpu_takes_none_either():
    assert planned("dlpack", "torch", "torch", copy=True).copies == 1
    far = planned("dlpack", "torch", "torch", device="cuda:1", reaches=lambda *_: True)
    assert (far.route, far.device) == ("place", "cuda:1")


def test_float8_enters_tensorflow_by_value():
    assert "float8_e5m2" in CODES
    for via in ("host", "serialize"):
        assert planned(via, "torch", "tensorflow", array={"dtype": "float8_e5m2"}, device="cpu").via == via
    with pytest.raises(UnsupportedDtype, match="float8_e5m2"):
        planned("dlpack", "torch", "tensorflow", array={"dtype": "float8_e5m2", "device": devices.HOST}, device="cpu")


def test_memory_of_the_host_takes_every_dtype():
    assert ways.MEMORY.dtypes == set(planner.CODES) and ways.MEMORY.opaque


@pytest.mark.parametrize("name", ["cupy_to_tensorflow", "every_pair_on_the_gpu", "between_two_gpus"])
def test_on_the_simulated_gpu(name):
    with simulated.daemon(gpus=2) as (address, environment):
        assert simulated.run("convert/ways_gpu_program.py", environment, address, name) == "done\n"
