# SPDX-License-Identifier: Apache-2.0
"""What is better than in the existing conversion line and in pydlpack: a test for each promise, by its number.

Rows about GPUs run here with frameworks that only say they have one; rows about processes are tests of their own files.
"""

import gc
import inspect
import pickle
import subprocess
import sys
import tempfile
import threading
import warnings

import numpy as np
import pytest
from arrays import aligned
from processes import environment, run_client, start_daemon

import arraybridge
from arraybridge import (
    DeviceUnavailable,
    DtypeConversion,
    MemoryConversionError,
    MemoryType,
    SourceTypeMismatch,
    UnsupportedArray,
    UnsupportedDtype,
    asdlpack,
    convert_memory,
    decorators,
    detect_memory_type,
    scale_dtype,
    stack_slices,
)

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::arraybridge.DeviceFallbackWarning")
HOST = ("numpy", "torch", "tensorflow", "jax")


def pixels(dtype="float32"):
    return np.arange(6).reshape(2, 3).astype(dtype)


def of(framework, values):
    return convert_memory(np.asarray(values), "numpy", framework, None)


def test_01_gpu_id_has_a_default_and_both_types_take_members():
    assert convert_memory(pixels(), MemoryType.NUMPY, MemoryType.TORCH).tolist() == pixels().tolist()


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_02_gpu_numbers_are_honoured_never_ignored(target):
    with pytest.raises(DeviceUnavailable):
        convert_memory(pixels(), "numpy", target, gpu_id=99)


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_03_gpu_none_is_the_cpu(target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = convert_memory(of(target, pixels()), target, target, gpu_id=None)
    where = {"torch": lambda: got.device.type, "tensorflow": lambda: got.device, "jax": lambda: str(got.devices())}[target]()
    assert "cpu" in where.lower()


@pytest.mark.parametrize("target", ["numpy", "tensorflow", "pyclesperanto"])
def test_04_jax_reaches_everybody(target):
    source = of("jax", pixels())
    try:
        got = convert_memory(source, "jax", target)
    except (arraybridge.FrameworkNotAvailable, DeviceUnavailable) as error:
        assert target == "pyclesperanto"
        pytest.skip(str(error))
    assert detect_memory_type(got) == target and np.asarray(got).tolist() == pixels().tolist()


def test_05_tensorflow_is_zero_copy_in_and_out():
    source = tf.constant(pixels())
    out = convert_memory(source, "tensorflow", "numpy")
    assert out.ctypes.data == source.__array__().ctypes.data
    back = convert_memory(out, "numpy", "tensorflow", None)
    assert back.__array__().ctypes.data == out.ctypes.data


def test_06_a_host_without_gpu_converts_with_the_default():
    assert convert_memory(pixels(), "numpy", "torch").device.type == "cpu"


def test_07_every_failure_has_four_attributes_and_pickles():
    for data, source, target, gpu in (
        (pixels(), "numpy", "invalid", 0), ([1], "numpy", "torch", 0), (pixels(), "numpy", "cupy", None),
        (pixels(), "numpy", "torch", -1), (pixels(object), "numpy", "torch", None), (pixels("f8"), "numpy", "jax", None),
    ):  # fmt: skip
        with pytest.raises(MemoryConversionError) as caught:
            convert_memory(data, source, target, gpu)
        error = pickle.loads(pickle.dumps(caught.value))
        assert type(error) is type(caught.value) and str(error) == str(caught.value)
        assert (error.source_type, error.target_type) == (source, target) and error.method and error.reason
        assert error.reason in str(error) and "array" not in str(error).partition(":")[0]


def test_08_gradients_bits_and_bfloat16_convert_and_forms_without_memory_are_named():
    assert convert_memory(torch.ones(2, requires_grad=True), "torch", "numpy").tolist() == [1, 1]
    bits = torch.tensor([1 + 2j]).conj()
    assert convert_memory(bits, "torch", "numpy")[0] == 1 - 2j and convert_memory(bits.imag, "torch", "jax")[0] == -2
    assert "bfloat16" in str(convert_memory(torch.ones(2, dtype=torch.bfloat16), "torch", "jax").dtype)
    for form, word in ((torch.eye(2).to_sparse_bsr((1, 1)), "sparse"), (torch.ones(2, device="meta"), "meta")):
        with pytest.raises(UnsupportedArray, match=word):
            convert_memory(form, "torch", "numpy")


@pytest.mark.parametrize("dtype", ["bool", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("target", ["torch", "tensorflow"])
def test_09_bools_and_unsigned_integers_convert(target, dtype):
    got = convert_memory(pixels(dtype), "numpy", target, None)
    assert dtype in str(got.dtype) and convert_memory(got, target, "numpy").tolist() == pixels(dtype).tolist()


def test_09_unknown_dtypes_never_become_float32():
    with pytest.raises(UnsupportedDtype):
        convert_memory(torch.ones(2, dtype=torch.complex32), "torch", "numpy")


@pytest.mark.parametrize("dtype", ["longdouble", "M8[s]", "U3", "O"])
def test_10_dtypes_of_numpy_alone_raise_before_any_copy(dtype, monkeypatch):
    monkeypatch.setattr("arraybridge._core.copy_to_heap", None)
    with pytest.raises(UnsupportedDtype):
        convert_memory(np.zeros(3, dtype), "numpy", "torch", None)


def test_10_big_endian_values_come_out_right():
    for target in ("torch", "tensorflow", "jax"):
        assert np.asarray(convert_memory(pixels(">f4"), "numpy", target, None)).tolist() == pixels().tolist()


def test_11_a_read_only_array_is_never_a_writable_alias():
    source = pixels()
    source.flags.writeable = False
    tensor = convert_memory(source, "numpy", "torch", None)
    tensor[0, 0] = 9
    assert source[0, 0] == 0
    with pytest.raises(arraybridge.ZeroCopyUnavailable, match="does not support read-only"):
        convert_memory(source, "numpy", "torch", None, copy=False)


@pytest.mark.parametrize("target", ["tensorflow", "jax"])
def test_12_later_writes_change_no_constant_array(target):
    source = pixels()
    got = convert_memory(source, "numpy", target, None)
    source[...] = -1
    assert np.asarray(got).tolist() == pixels().tolist()


def test_13_jax_without_x64_refuses_instead_of_narrowing():
    with pytest.raises(UnsupportedDtype):
        convert_memory(pixels("i8"), "numpy", "jax", None)


def test_14_negative_strides_never_end_the_process():
    run_client(
        "import numpy, torch, arraybridge\n"
        "for a in (numpy.arange(6.0)[::-1], numpy.arange(6.0).reshape(2, 3)[:, ::-1]):\n"
        "    assert arraybridge.convert_memory(a, 'numpy', 'torch', None).tolist() == a.tolist()\n"
        "    try: arraybridge.convert_memory(a, 'numpy', 'torch', None, copy=False)\n"
        "    except arraybridge.ZeroCopyUnavailable: pass\n"
        "    else: raise SystemExit('shared')"
    )


def test_16_cleanup_imports_nothing():
    run_client(
        "import sys, arraybridge\narraybridge.cleanup_all_gpu_frameworks()\n"
        "assert not {'numpy', 'torch', 'tensorflow', 'jax'} & set(sys.modules)"
    )


@pytest.mark.parametrize("error", [tf.errors.InvalidArgumentError(None, None, "x"), RuntimeError("CUDA error: device-side assert")])
def test_17_only_out_of_memory_runs_again(error):
    runs = []

    def work():
        runs.append(1)
        raise error

    with pytest.raises(type(error)):
        arraybridge.execute_with_oom_recovery(work, "tensorflow")
    assert len(runs) == 1


def test_18_errors_of_the_body_and_of_the_dtype_step_are_raised_after_one_run():
    runs = []

    @decorators.numpy(dtype_conversion=DtypeConversion.UINT8)
    def work(array, error=None):
        runs.append(1)
        if error:
            raise error
        return array * 1j

    with pytest.raises(ZeroDivisionError):
        work(pixels(), ZeroDivisionError())
    with pytest.raises(UnsupportedDtype):
        work(pixels())
    assert len(runs) == 2


def test_19_functions_with_keywords_of_their_own_have_a_valid_signature():
    @decorators.torch
    def work(image, **options):
        return image

    assert str(inspect.signature(work)).startswith("(image, *, dtype_conversion=")
    assert list(inspect.signature(work).parameters)[-1] == "options"


def test_20_scaling_keeps_values_and_spoils_one_element_at_most():
    assert scale_dtype(pixels() + 10, "uint8").tolist() == (pixels("u1") + 10).tolist()
    assert scale_dtype(np.float32([10, 15, 20]), "uint8").tolist() == [10, 15, 20]
    assert set(scale_dtype(np.full(4, 0.5), "uint8").tolist()) == {127}
    with pytest.warns(RuntimeWarning):
        assert scale_dtype(np.array([np.nan, 1.0, 0.0]), "uint8").tolist() == [0, 255, 0]
    assert scale_dtype(np.array([300], "u2"), "uint8").tolist() == [255]
    assert scale_dtype(np.zeros((0, 2)), "uint8").shape == (0, 2)


def test_21_stacking_refuses_broadcasts_and_promotes():
    with pytest.raises(ValueError):
        stack_slices([np.zeros((2, 3)), np.zeros((1, 3))])
    assert stack_slices([np.ones((1, 1), "i4"), np.full((1, 1), 0.7)])[1, 0, 0] == 0.7
    assert detect_memory_type(stack_slices([pixels()] * 2, "tensorflow", None)) == "tensorflow"


def test_21_stacks_of_pyclesperanto():
    try:
        stack = stack_slices([pixels()] * 2, "pyclesperanto")
    except (arraybridge.FrameworkNotAvailable, DeviceUnavailable) as error:
        pytest.skip(str(error))
    assert detect_memory_type(stack) == "pyclesperanto" and np.asarray(stack).tolist() == [pixels().tolist()] * 2


def test_22_what_is_an_array_and_what_is_not():
    for other in (np.dtype("f4"), np.float32(1), torch.Size([1]), torch.float32, torch.nn.Linear(1, 1), tf.float32):
        assert detect_memory_type(other) is None

    class Mine(torch.Tensor):
        pass

    assert detect_memory_type(torch.ones(1).as_subclass(Mine)) == "torch"


def test_22_the_prototypes_arrays_are_detected(monkeypatch):
    from types import ModuleType, SimpleNamespace

    module = ModuleType("pyclesperanto_prototype")
    kind = type("OCLArray", (), {"__module__": "pyclesperanto_prototype._tier0._pycl"})
    module._tier0 = SimpleNamespace(_pycl=SimpleNamespace(OCLArray=kind))
    monkeypatch.setitem(sys.modules, "pyclesperanto_prototype", module)
    assert detect_memory_type(kind()) == "pyclesperanto"


def test_23_a_wrong_source_type_is_reported():
    with pytest.raises(SourceTypeMismatch):
        convert_memory([1, 2], "numpy", "numpy")


def test_24_decorators_convert_and_take_what_is_documented():
    @decorators.jax(gpu_id=None, clear_cuda_cache=True)
    def work(image):
        assert detect_memory_type(image) == "jax"
        return image

    assert detect_memory_type(work(pixels())) == "jax"


def test_25_nothing_is_imported_unasked_and_nothing_shadowed():
    run_client(
        "import sys, numpy, torch\nfrom arraybridge import *\n"
        "convert_memory(numpy.ones(2), 'numpy', 'torch')\n"
        "assert torch.ones(1) is not None and not {'tensorflow', 'jax', 'cupy'} & set(sys.modules)"
    )


def test_26_a_thousand_conversions_return_every_reference():
    source = pixels()
    for target in ("torch", "tensorflow", "jax"):
        convert_memory(source, "numpy", target, None)
    gc.collect()
    before = sys.getrefcount(source), len(gc.get_objects())
    for _ in range(1000):
        for target in ("torch", "tensorflow", "jax"):
            convert_memory(source, "numpy", target, None, copy=None)
    gc.collect()
    assert sys.getrefcount(source) == before[0] and len(gc.get_objects()) < before[1] + 500


def test_27_copies_requirements_plans_and_trees(broker):
    got, plan = broker.convert([pixels()[:, ::-1]], "torch", copy=True, explain=True)
    assert plan.reasons and got[0].tolist() == pixels()[:, ::-1].tolist()
    with pytest.raises(arraybridge.ZeroCopyUnavailable):
        broker.convert(pixels()[:, ::-1], "torch", require="zero-copy")
    broker.put({"a": pixels(), "b": [pixels()]}, "tree")
    assert broker.get("tree")["b"][0].tolist() == pixels().tolist()


def test_28_versioned_structs_travel_under_their_name_with_every_keyword():
    capsule = asdlpack(pixels()).__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=None)
    assert "dltensor_versioned" in repr(capsule)


def test_29_unused_results_leak_nothing():
    source = pixels()
    before = sys.getrefcount(source)
    for _ in range(100):
        asdlpack(source)
    assert sys.getrefcount(source) == before


def test_30_an_exported_temporary_stays_valid():
    class Producer:
        def __dlpack__(self, **keywords):
            return np.arange(1000.0).__dlpack__(max_version=(1, 0))

        def __dlpack_device__(self):
            return 1, 0

    view = asdlpack(Producer())
    junk = [np.zeros(1000) for _ in range(20)]
    assert torch.from_dlpack(view).sum() == 499500 and junk


def test_31_bytes_are_left_alone():
    text = bytes(map(ord, "Hello!"))  # no constant: that would be what it is compared with
    torch.from_dlpack(asdlpack(text))[0] = 74
    assert text == b"Hello!" and asdlpack(memoryview(text)).read_only


def test_32_what_would_be_misread_is_refused_and_nothing_works():
    for bad in (np.array([1], ">i4"), np.zeros(2, "u1,f4")["f1"], np.ma.array([1], mask=[1])):
        with pytest.raises(BufferError):
            asdlpack(bad)
    assert torch.from_dlpack(asdlpack(np.zeros((0, 3)))).shape == (0, 3)


def test_33_float8_is_known_and_longdouble_refused():
    value = torch.ones(2).to(torch.float8_e4m3fn)
    assert asdlpack(value).dtype_code == (10, 8, 1)
    with pytest.raises(BufferError):
        asdlpack(np.longdouble(1))


@pytest.mark.parametrize("framework", HOST)
def test_34_one_memory_in_two_processes_by_put_and_get(broker, client, framework):
    broker.put(of(framework, pixels()), "a")
    client(
        "import sys, arraybridge\n"
        "broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
        f"assert broker.get('a', {framework!r}, require='zero-copy').sum() == 15"
        if framework != "tensorflow"
        else "import sys, arraybridge, tensorflow\n"
        "broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
        "assert tensorflow.reduce_sum(broker.get('a', 'tensorflow', require='zero-copy')) == 15",
        broker.namespace,
    )


def counted():
    """Of each pair, route and set of reasons: conversions, copies, bytes."""
    return {each[:4]: each[4:] for each in arraybridge.conversion_counts()}


def more_than(before):
    """What has been counted since."""
    zero = (0, 0, 0)
    more = {
        kind: tuple(now - then for now, then in zip(numbers, before.get(kind, zero), strict=True)) for kind, numbers in counted().items()
    }
    return {kind: numbers for kind, numbers in more.items() if any(numbers)}


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
@pytest.mark.parametrize("target", HOST)
def test_36_every_copy_has_a_stated_counted_reason(broker, target):
    for source in (pixels(), pixels()[:, ::-1], pixels(">f4"), pixels()[::2]):
        for copy in (None, True):
            before, sums = counted(), broker.stats()
            plan = broker.convert(source, target, copy=copy, explain=True).plan
            assert bool(plan.copies) == bool(plan.reasons) == (not plan.zero_copy)
            assert all(": " in reason for reason in plan.reasons)
            codes = tuple(reason.partition(":")[0] for reason in plan.reasons)
            kind = "numpy", target, plan.route, codes
            assert more_than(before) == {kind: (1, plan.copies, plan.copied_bytes)}
            if plan.copies:
                assert plan.copied_bytes == source.nbytes * plan.copies
            now = broker.stats()
            assert now["convert_copied_bytes"] - sums["convert_copied_bytes"] == plan.copied_bytes
            assert now["convert_copies"] - sums["convert_copies"] == plan.copies
            assert now["convert_conversions"] - sums["convert_conversions"] == 1
            assert now[f"convert_{plan.route}"] - sums[f"convert_{plan.route}"] == 1


@pytest.mark.parametrize("target", HOST)
def test_36_what_takes_the_short_way_is_counted_too(broker, target):
    """By sixteen threads at once; of convert_memory and of get as well."""
    source, rounds = aligned((16,)), 500
    broker.put(source, "frame")
    ways = {
        "hand_over" if target != "numpy" else "identity": (
            lambda: broker.convert(source, target, copy=False),
            lambda: convert_memory(source, "numpy", target, None, copy=False),
        ),
        "share": (lambda: broker.get("frame", target),),
    }
    for way, calls in ways.items():
        before = counted()
        threads = [threading.Thread(target=lambda: [call() for call in calls for _ in range(rounds)]) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kind = ("share", target, "hand_over", ()) if way == "share" else ("numpy", target, way, ())
        assert more_than(before) == {kind: (16 * rounds * len(calls), 0, 0)}
        assert more_than(counted()) == {}, "looking counts nothing"


def test_36_a_tree_counts_by_its_arrays_and_a_refusal_not_at_all(broker):
    before = counted()
    with pytest.raises(UnsupportedDtype):
        broker.convert(pixels(object), "torch")
    with pytest.raises(UnsupportedDtype):
        convert_memory(pixels("f8"), "numpy", "jax", None)
    with pytest.raises(arraybridge.ZeroCopyUnavailable):
        broker.convert(pixels()[:, ::-1], "torch", copy=False)
    assert more_than(before) == {}
    broker.convert({"a": pixels(), "b": [pixels(), pixels()]}, "torch")
    assert more_than(before) == {("numpy", "torch", "hand_over", ()): (3, 0, 0)}


def test_35_that_memory_survives_its_producer_and_the_daemon():
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "error")
        producer = subprocess.Popen(
            [sys.executable, "-c", PRODUCER, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
        assert producer.stdout is not None and producer.stdout.readline() == b"put\n"
        broker = arraybridge.Broker(directory, start="never")
        got = {framework: broker.get("frame", framework, require="zero-copy") for framework in HOST}
        producer.kill()
        producer.communicate()
        assert broker.get("frame").sum() == 499_500, "the name outlives who gave it"
        daemon.kill()
        daemon.wait()
        for framework, array in got.items():
            assert convert_memory(array, framework, "numpy").tolist() == list(range(1000)), framework
            again = convert_memory(array, framework, "torch", None, copy=True)
            assert float(again.sum()) == 499_500
        with pytest.raises(arraybridge.BrokerUnavailable):
            broker.get("another")


PRODUCER = """
import sys, numpy, arraybridge
broker = arraybridge.Broker(sys.argv[1], start="never")
broker.put(numpy.arange(1000, dtype="f4"), "frame")
print("put", flush=True)
sys.stdin.read()
"""
