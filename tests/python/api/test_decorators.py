# SPDX-License-Identifier: Apache-2.0
"""The decorators: what is converted, what is not, signatures, dtypes, recovery."""

import copy
import inspect
import pickle
from collections import namedtuple

import numpy as np
import pytest
from processes import run_client

import arraybridge
from arraybridge import DtypeConversion, InvalidMemoryType, MemoryConversionError, UnsupportedDtype, decorators
from arraybridge.decorators import memory_types

torch = pytest.importorskip("torch", reason="torch is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::arraybridge.DeviceFallbackWarning")
OWN = {"numpy": decorators.numpy, "torch": decorators.torch, "tensorflow": decorators.tensorflow, "jax": decorators.jax}


def kind(array):
    return arraybridge.detect_memory_type(array)


def test_memory_types_declares_and_converts_nothing():
    @memory_types(input_type="numpy", output_type="torch")
    def identity(array):
        """Doc."""
        return array

    assert (identity.input_memory_type, identity.output_memory_type) == ("numpy", "torch")
    assert type(identity.output_memory_type) is str
    array = np.ones(2)
    assert identity(array) is array and identity.__name__ == "identity" and identity.__doc__ == "Doc."
    with pytest.raises(InvalidMemoryType):
        memory_types("numpy", "invalid")


def test_contracts_are_asked_of_results():
    @memory_types("numpy", "numpy", contract=lambda result: result.ndim == 2)
    def same(array):
        return array

    assert same(np.ones((1, 1))).shape == (1, 1)
    with pytest.raises(ValueError, match="same violated its output contract"):
        same(np.ones(1))

    @decorators.torch(output_type="numpy", contract=lambda result: isinstance(result, np.ndarray))
    def doubled(array):
        return array * 2

    assert doubled(np.ones(2)).tolist() == [2, 2]

    @decorators.numpy(contract=lambda result: False)
    def never(array):
        return array, 1

    with pytest.raises(ValueError, match="never violated its output contract"):
        never(np.ones(1))


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("source", OWN)
def test_arrays_come_as_the_frameworks_own_and_so_does_the_result(own, source):
    seen = []

    @OWN[own]
    def work(first, second, text, *, third=None):
        seen.extend([kind(first), kind(second), text, kind(third)])
        return first

    array = arraybridge.convert_memory(np.arange(6, dtype="f4"), "numpy", source, None)
    got = work(array, array, "untouched", third=array)
    assert seen == [own, own, "untouched", own] and kind(got) == own
    assert np.asarray(got).tolist() == list(range(6))
    assert (work.input_memory_type, work.output_memory_type) == (own, own)


def test_what_is_of_the_input_type_stays_where_it_is_and_the_rest_is_untouched():
    tensor, inside = torch.ones(3), [np.ones(1)]

    @decorators.torch()
    def same(array, rest, number=3):
        assert array is tensor and rest is inside and number == 3
        return rest

    assert same(tensor, inside) is inside
    assert same(tensor, rest=inside) is inside


def test_types_of_their_own_and_results_that_are_tuples():
    Pair = namedtuple("Pair", "image mask")

    @decorators.jax(input_type="torch", output_type="numpy")
    def work(array):
        assert kind(array) == "torch"
        return array + 1, array, "more"

    main, second, more = work(np.zeros(2, "f4"))
    assert main.tolist() == [1, 1] and isinstance(main, np.ndarray) and kind(second) == "torch" and more == "more"

    @decorators.numpy
    def named(array):
        return Pair(torch.ones(2), torch.ones(2))

    pair = named(np.zeros(2, "f4"))
    assert isinstance(pair, Pair) and kind(pair.image) == "numpy" and kind(pair.mask) == "torch"

    @decorators.torch
    def nothing(array):
        return None

    assert nothing(np.zeros(2)) is None

    @decorators.torch
    def empty(array):
        return ()

    assert empty(np.zeros(2)) == ()


def test_the_input_dtype_is_kept_unless_another_is_wished():
    @decorators.numpy
    def half(image):
        return image / 2

    image = np.array([[10, 20, 31]], "u1")
    assert half(image).dtype == "uint8" and half(image).tolist() == [[5, 10, 16]]
    assert half(image, dtype_conversion=DtypeConversion.NATIVE_OUTPUT).dtype == "float64"
    assert half(image, dtype_conversion=DtypeConversion.FLOAT32).dtype == "float32"
    assert half(image, dtype_conversion=None).dtype == "uint8"
    assert half(image, dtype_conversion="int16").dtype == "int16"
    with pytest.raises(ValueError):
        half(image, dtype_conversion="int3")

    @decorators.torch(dtype_conversion=DtypeConversion.NATIVE_OUTPUT, output_type="numpy")
    def native(image):
        return image / 2

    assert native(image).dtype == "float32"
    assert native(image, dtype_conversion=DtypeConversion.PRESERVE_INPUT).dtype == "uint8"


@pytest.mark.parametrize("member", [m for m in DtypeConversion if m.numpy_dtype is not None])
def test_every_policy_is_a_dtype(member):
    @decorators.torch
    def ones(image):
        return image + 1

    assert member.numpy_dtype is getattr(np, member.value)
    got = ones(np.zeros((2, 2), "f4"), dtype_conversion=member)
    assert str(got.dtype) == f"torch.{member.value}"


def test_the_rule_of_scaling_is_chosen_when_decorating():
    image = np.array([[0.0, 1.0]])

    @decorators.numpy(dtype_conversion=DtypeConversion.UINT8)
    def stretched(image):
        return image

    @decorators.numpy(dtype_conversion=DtypeConversion.UINT8, scaling="clip")
    def kept(image):
        return image

    assert stretched(image).tolist() == [[0, 255]] and kept(image).tolist() == [[0, 1]]
    with pytest.raises(arraybridge.InvalidRequest):
        decorators.numpy(scaling="stretch")


def test_a_dtype_that_the_function_lacks_is_met_by_the_output():
    @decorators.jax(input_type="numpy", output_type="numpy")
    def work(image):
        return jax.numpy.asarray(image.astype("f4"))

    assert work(np.ones(2)).dtype == "float64"

    @decorators.jax
    def own(image):
        return image

    with pytest.raises(UnsupportedDtype, match="jax_enable_x64"):
        own(np.ones(2))


def test_signatures_show_the_added_keywords_before_the_others():
    @decorators.numpy
    def plain(image, sigma=1.0, **options):
        """Blurs."""
        return image

    parameters = inspect.signature(plain).parameters
    assert list(parameters) == ["image", "sigma", "dtype_conversion", "slice_by_slice", "options"]
    assert parameters["dtype_conversion"].default is DtypeConversion.PRESERVE_INPUT
    assert parameters["slice_by_slice"].default is False
    assert plain.__doc__.startswith("Blurs.\n\nComputes with numpy") and plain.__name__ == "plain"
    assert plain(np.ones(1), sigma=2, more=3).tolist() == [1]

    @decorators.numpy
    def own(image, slice_by_slice="mine"):
        return image if slice_by_slice == "mine" else None

    assert list(inspect.signature(own).parameters) == ["image", "slice_by_slice", "dtype_conversion"]
    assert own(np.ones((1, 1, 1))) is not None and own(np.ones(1), slice_by_slice=True) is None


def test_slices_are_processed_one_by_one():
    shapes = []

    @decorators.torch(output_type="numpy")
    def work(image, plus):
        shapes.append(tuple(image.shape))
        return image + plus

    got = work(np.zeros((4, 2, 3), "f4"), 1, slice_by_slice=True)
    assert shapes == [(2, 3)] * 4 and isinstance(got, np.ndarray) and got.shape == (4, 2, 3) and (got == 1).all()
    assert work(plus=2, image=np.zeros((3, 2, 3), "f4"), slice_by_slice=True).sum() == 36 and shapes[-1] == (2, 3)
    work(np.zeros((2, 3), "f4"), 1, slice_by_slice=True)
    assert shapes[-1] == (2, 3)
    work(np.zeros((4, 2, 3), "f4"), 1)
    assert shapes[-1] == (4, 2, 3)


def test_the_body_runs_once_and_its_errors_arrive():
    runs = []

    @decorators.torch
    def broken(array, error):
        runs.append(1)
        raise error

    for error in (KeyError("mine"), RuntimeError("CUDA error: an illegal memory access was encountered"), ValueError("x")):
        runs.clear()
        with pytest.raises(type(error)) as caught:
            broken(np.ones(1), error)
        assert caught.value is error and len(runs) == 1

    @decorators.numpy(dtype_conversion=DtypeConversion.UINT8)
    def imaginary(array):
        runs.append(1)
        return array * 1j

    runs.clear()
    with pytest.raises(UnsupportedDtype, match="imaginary"):
        imaginary(np.ones(2))
    assert len(runs) == 1


def test_out_of_memory_runs_the_body_again():
    runs = []

    def work(array):
        runs.append(1)
        if len(runs) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return array

    assert decorators.torch(work)(np.ones(1, "f4")).tolist() == [1] and len(runs) == 3
    runs.clear()
    with pytest.raises(torch.OutOfMemoryError):
        decorators.torch(oom_recovery=False)(work)(np.ones(1))
    assert len(runs) == 1


def test_caches_are_cleared_on_request(monkeypatch):
    from arraybridge.compat import cleanup

    cleared = []
    monkeypatch.setattr(cleanup, "clear_cache", cleared.append)

    @decorators.torch(clear_cuda_cache=True)
    def work(array):
        return array

    work(np.ones(1))
    assert cleared == ["torch"]
    decorators.torch(lambda array: array)(np.ones(1))
    assert cleared == ["torch"]


def test_gpu_numbers_are_heard():
    @decorators.torch(gpu_id=5)
    def work(array):
        return array

    with pytest.raises(MemoryConversionError, match="CUDA"):
        work(np.ones(1))
    assert work(torch.ones(1)) is not None  # already there
    on_cpu = decorators.torch(gpu_id=None)(lambda array: array)
    assert on_cpu(np.ones(1)).device.type == "cpu"


@decorators.torch
def module_level(array):
    return array


class Filter:
    @decorators.torch
    def apply(self, array):
        return array + 1


def test_wrappers_pickle_copy_and_are_methods():
    assert pickle.loads(pickle.dumps(module_level)) is module_level is copy.copy(module_level)
    assert Filter().apply(np.zeros(1, "f4")).tolist() == [1]
    assert Filter().apply(np.zeros((4, 2, 3), "f4"), slice_by_slice=True).shape == (4, 2, 3)


def test_frameworks_without_a_module_here_decorate_all_the_same():
    for decorator in (decorators.cupy, decorators.pyclesperanto):

        @decorator
        def work(array, number):
            return number

        assert work(None, 3) == 3
    with pytest.raises(InvalidMemoryType):
        decorators.numpy(input_type="invalid")


def test_decorating_and_calls_without_arrays_import_nothing():
    code = """
import sys, arraybridge
from arraybridge.decorators import cupy, jax, numpy, pyclesperanto, tensorflow, torch
for decorator in (cupy, jax, numpy, pyclesperanto, tensorflow, torch):
    assert decorator(lambda x, **more: x)(3) == 3
    assert decorator(gpu_id=None)(lambda x: x)("text", slice_by_slice=True) == "text"
assert not {"numpy", "torch", "jax", "tensorflow", "cupy"} & set(sys.modules)
assert arraybridge.torch is torch
"""
    run_client(code)
