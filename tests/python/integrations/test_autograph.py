# SPDX-License-Identifier: Apache-2.0
"""Inside tf.function: our functions run as they are, and what has no memory yet is refused by an error of this package."""

import inspect
import subprocess
import sys

import pytest
from processes import environment, run_client

import arraybridge
from arraybridge import MemoryConversionError, MemoryType, UnsupportedArray

tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")

CALLS = {
    "convert_memory": lambda x, broker: arraybridge.convert_memory(x, "tensorflow", "numpy", None),
    "to_numpy": lambda x, broker: MemoryType.TENSORFLOW.to_numpy(x, None),
    "converter": lambda x, broker: arraybridge.get_converter("tensorflow").to_numpy(x, None),
    "asdlpack": lambda x, broker: arraybridge.asdlpack(x),
    "put": lambda x, broker: broker.put(x, "symbolic"),
    "convert": lambda x, broker: broker.convert(x, "numpy"),
    "plan": lambda x, broker: broker.plan(x, "numpy"),
    "scale": lambda x, broker: arraybridge.scale_dtype(x, "uint8"),
    "scaling_function": lambda x, broker: arraybridge.SCALING_FUNCTIONS["tensorflow"](x, "uint8"),
    "decorated": lambda x, broker: decorated(x),
}


@arraybridge.numpy
def decorated(image):
    return image


@pytest.mark.parametrize("name", CALLS)
def test_a_symbolic_tensor_is_refused_by_an_error_of_ours(broker, name):
    call = CALLS[name]

    @tf.function
    def traced(x):
        return call(x, broker)

    with pytest.raises(UnsupportedArray, match=r"symbolic.*tf\.py_function") as caught:
        traced(tf.ones(3))
    assert isinstance(caught.value, MemoryConversionError) and caught.value.source_type == "tensorflow"


def test_what_needs_no_memory_works_in_a_graph():
    @tf.function
    def traced(x):
        assert arraybridge.detect_memory_type(x) == "tensorflow"
        return x + 1

    assert traced(tf.ones(3)).numpy().tolist() == [2, 2, 2]


def test_the_way_out_that_the_error_names_works():
    def eager(x):
        return arraybridge.convert_memory(x, "tensorflow", "numpy", None) * 2

    @tf.function
    def traced(x):
        return tf.py_function(eager, [x], tf.float32) + 1

    assert traced(tf.ones(3)).numpy().tolist() == [3, 3, 3]


def test_tensorflow_prints_nothing_about_our_code(address, tmp_path):
    code = """
import sys, arraybridge
assert "tensorflow" not in sys.modules
from arraybridge import convert_memory
broker = arraybridge.Broker(sys.argv[1], namespace="autograph", start="never")
assert "tensorflow" not in sys.modules
import tensorflow as tf


def converting(x):
    if tf.reduce_all(x > 0):
        return convert_memory(x, "tensorflow", "numpy", None)
    return x


def putting(x):
    return broker.put(x)


def exporting(x):
    return arraybridge.asdlpack(x)


for function in (converting, putting, exporting):
    try:
        tf.function(function)(tf.ones(3))
    except arraybridge.UnsupportedArray:
        print("refused")
"""
    script = tmp_path / "script.py"  # AutoGraph rewrites what has a source alone
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script), address], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused") == 3
    told = done.stdout + done.stderr
    assert "AutoGraph" not in told and "arraybridge" not in told, told


def functions_of(found):
    """A function, or the functions that a class of ours has."""
    if inspect.isfunction(found):
        return {found.__qualname__: found}
    if not inspect.isclass(found):
        return {}
    ours = [each for each in found.__mro__ if each.__module__.startswith("arraybridge")]
    members = {name: member for each in reversed(ours) for name, member in vars(each).items()}
    plain = {name: getattr(member, "__func__", member) for name, member in members.items()}
    return {f"{found.__name__}.{name}": each for name, each in plain.items() if inspect.isfunction(each) and name[0] != "_"}


@pytest.mark.parametrize("name", dir(arraybridge))
def test_every_entry_point_is_marked(name):
    found = functions_of(getattr(arraybridge, name))
    unmarked = [each for each, function in found.items() if not hasattr(function, "autograph_info__")]
    assert not unmarked


def test_importing_this_package_imports_no_tensorflow():
    assert (
        run_client("import sys, arraybridge.broker, arraybridge.convert, arraybridge.conversion; print('tensorflow' in sys.modules)")
        == "False\n"
    )
