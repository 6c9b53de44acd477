# SPDX-License-Identifier: Apache-2.0
"""convert_memory's errors and warnings: whatever is wrong is named, in an error of the family, on the caller's line."""

import itertools
import warnings

import numpy as np
import pytest

import arraybridge
from arraybridge import (
    DeviceFallbackWarning,
    InvalidDevice,
    InvalidMemoryType,
    MemoryConversionError,
    MemoryType,
    SourceTypeMismatch,
    UnsupportedArray,
    UnsupportedDtype,
    asdlpack,
    convert_memory,
    decorators,
    get_converter,
)

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")


def values(dtype="float32"):
    return np.arange(12).reshape(3, 4).astype(dtype)


@pytest.fixture
def no_gpu():
    if torch.cuda.is_available() or tf.config.list_logical_devices("GPU"):
        pytest.skip("needs a host without a usable GPU")


@pytest.fixture
def forget(monkeypatch):
    """Makes this process one that has warned of no fallback yet."""
    return lambda: monkeypatch.setattr("arraybridge.conversion.memory.fallbacks", itertools.count())


def test_the_warning_names_the_callers_line_whatever_was_called(no_gpu, forget):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for ask in (
            lambda: MemoryType.NUMPY.to_torch(values()),
            lambda: get_converter("numpy").to_torch(values()),
            lambda: get_converter("torch").from_numpy(values()),
            lambda: get_converter("torch").from_dlpack(values()),
            lambda: get_converter("torch").move_to_device(torch.ones(2), 0),
            lambda: arraybridge.stack_slices([values()], "torch"),
            lambda: arraybridge.unstack_slices(values()[None], "torch"),
            lambda: arraybridge.process_slices(values()[None], lambda plane: plane, gpu_id=None),
            lambda: decorators.torch(lambda tensor: tensor + 1)(values()),
            lambda: decorators.numpy(output_type="torch")(lambda array: array)(values()),
        ):
            forget()
            ask()
    assert [each.filename for each in caught] == [__file__] * 9
    assert {each.category for each in caught} == {DeviceFallbackWarning}


def test_other_warnings_name_the_callers_line_too(broker):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        arraybridge.scale_dtype(np.array([np.nan]), "uint8")
        decorators.numpy(lambda array: array * np.inf, dtype_conversion="uint8")(np.ones(1))
        arraybridge.SCALING_FUNCTIONS["numpy"](np.array([np.nan]), "uint8")
        broker.convert(values()[:, ::-1], "torch")
        broker.put(values(), "warned").to("torch", copy=None)
    assert [each.filename for each in caught] == [__file__] * 4, [str(each) for each in caught]


def test_nobody_is_warned_of_a_copy_that_was_asked_for(broker):
    share = broker.put(values(), "asked")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for array in (values(), values()[:, ::-1], values(">f4"), share):
            for target in ("numpy", "torch", "tensorflow", "jax"):
                assert broker.convert(array, target, copy=True, explain=True).plan.copies == 1
                assert broker.get("asked", target, copy=True, explain=True).plan.copies == 1
    with pytest.warns(arraybridge.CopyWarning):
        broker.convert(values()[:, ::-1], "torch")


def test_the_fallbacks_of_a_generator_expression_are_its_callers(no_gpu, forget):
    forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(map(MemoryType.NUMPY.to_torch, [values()]))
    assert [each.filename for each in caught] == [__file__]
    assert {each.category for each in caught} == {DeviceFallbackWarning}


def test_without_a_source_type_a_chunked_array_is_one():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    chunked = pyarrow.chunked_array([[1.0, 2.0]])
    assert np.asarray(asdlpack(chunked)).tolist() == [1, 2]
    for target in ("numpy", "torch", "tensorflow", "jax"):
        with jax.enable_x64(True):
            assert np.asarray(convert_memory(chunked, None, target, None)).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (lambda: tf.ragged.constant([[1.0], [2.0, 3.0]]), "a RaggedTensor"),
        (lambda: tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])), "an? IndexedSlices"),
    ],
    ids=["ragged", "slices"],
)
def test_tensors_of_many_parts_are_refused_by_their_form(make, form):
    parts = make()
    assert arraybridge.detect_memory_type(parts) is None
    for target in ("numpy", "torch", "tensorflow", "jax"):
        for source in (None, "tensorflow"):
            with pytest.raises(UnsupportedArray, match=f"{form} has no memory") as caught:
                convert_memory(parts, source, target, None)
            assert (caught.value.source_type, caught.value.target_type) == ("tensorflow", target)
    with pytest.raises(UnsupportedArray, match=form):
        asdlpack(parts)
    with pytest.raises(SourceTypeMismatch):
        convert_memory(parts, "torch", "numpy")


@pytest.mark.parametrize("nonsense", [np.ones(3), [], {}, None, 5, object, float("nan")], ids=repr)
def test_whatever_is_no_name_is_named_in_an_error_of_the_family(nonsense):
    for gpu_id in (0, None):
        with pytest.raises(InvalidMemoryType, match="the name of a framework.*: use one of .*'numpy', .*'jax', 'cupy'"):
            convert_memory(values(), "numpy", nonsense, gpu_id)
        if nonsense is not None:
            with pytest.raises(InvalidMemoryType, match="the name of a framework.*: use one of .*'numpy', .*'jax', 'cupy'"):
                convert_memory(values(), nonsense, "numpy", gpu_id)
            with pytest.raises(InvalidMemoryType, match="the name of a framework.*: use one of .*'numpy', .*'jax', 'cupy'"):
                arraybridge.stack_slices([np.ones((1, 1))], nonsense, gpu_id)
    with pytest.raises(InvalidMemoryType, match="the name of a framework.*: use one of .*'numpy', .*'jax', 'cupy'"):
        arraybridge.clear_cache(nonsense)
    with pytest.raises(InvalidMemoryType, match="the name of a framework.*: use one of .*'numpy', .*'jax', 'cupy'"):
        arraybridge.get_device_id(values(), nonsense)
    with pytest.raises(MemoryConversionError):
        arraybridge.Broker("/nonexistent", start="never").convert(values(), nonsense)


@pytest.mark.parametrize("module", [None, 5])
def test_a_class_without_a_module_is_no_framework_and_may_be_one_of_its_own(module):
    Stranger = type("Stranger", (), {"__module__": module})
    Tensor = type("Tensor", (torch.Tensor,), {"__module__": module})
    nobody = arraybridge.Broker("/nonexistent", start="never")
    with pytest.raises(InvalidMemoryType, match="Stranger"):
        convert_memory(Stranger(), None, "numpy")
    for ask in (lambda: nobody.convert(Stranger(), "numpy"), lambda: asdlpack(Stranger())):
        with pytest.raises(UnsupportedArray, match="Stranger supports no array protocol"):
            ask()
    tensor = torch.ones(2).as_subclass(Tensor)
    assert convert_memory(tensor, None, "numpy").tolist() == nobody.convert(tensor, "numpy").tolist() == [1, 1]


def test_a_device_that_is_none_is_named():
    nobody = arraybridge.Broker("/nonexistent", start="never")
    for bad in (np.ones(3), [], object()):
        with pytest.raises(InvalidDevice, match="is not a device: use"):
            nobody.convert(values(), "torch", device=bad)
        with pytest.raises(InvalidDevice, match="is not the number of a GPU"):
            convert_memory(values(), "numpy", "torch", bad)


def test_a_way_out_is_named_where_there_is_one():
    wide = np.arange(3)
    with pytest.raises(UnsupportedDtype, match=r"jax_enable_x64, or pass allow_downcast=True"):
        convert_memory(wide, "numpy", "jax", None)
    for ask in (
        lambda: MemoryType.NUMPY.to_jax(wide, None),
        lambda: get_converter("numpy").to_jax(wide, None),
        lambda: arraybridge.stack_slices([wide[None]], "jax", None),
        lambda: arraybridge.unstack_slices(wide[None, None], "jax", None),
        lambda: decorators.jax(gpu_id=None)(lambda x: x)(wide),
    ):
        with pytest.raises(UnsupportedDtype, match="jax_enable_x64") as caught:
            ask()
        assert "allow_downcast" not in str(caught.value) and caught.value.target_type == "jax"


def test_a_tensor_of_mkldnn_is_not_called_sparse():
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without MKL-DNN")
    with pytest.raises(UnsupportedArray, match=r"a tensor of the layout torch\._mkldnn") as caught:
        convert_memory(torch.ones(2).to_mkldnn(), "torch", "numpy")
    assert "sparse" not in str(caught.value)
    with pytest.raises(UnsupportedArray, match=r"a sparse tensor \(torch\.sparse_bsr\)"):
        convert_memory(torch.ones(2, 2).to_sparse_bsr((1, 1)), "torch", "numpy")
