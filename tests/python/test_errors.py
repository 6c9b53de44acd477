"""Every error is also the builtin a user would guess, says what it means, and pickles."""

import pickle
from types import SimpleNamespace

import pytest

from arraybridge import errors, planner
from arraybridge.commands.tables import markdown

BROKER = {
    3: (errors.InvalidRequest, ValueError),
    4: (errors.BrokerTimeout, TimeoutError),
    5: (errors.ShareNotFound, KeyError),
    6: (errors.ShareExists, ValueError),
    7: (errors.PermissionDenied, PermissionError),
    8: (errors.OutOfMemory, MemoryError),
    14: (errors.BrokerUnavailable, ConnectionError),
    9: (errors.BrokerError, Exception),
    13: (errors.BrokerError, Exception),
}
CONVERSION = {
    errors.InvalidMemoryType: (ValueError,),
    errors.SourceTypeMismatch: (TypeError,),
    errors.FrameworkNotAvailable: (ImportError,),
    errors.DeviceUnavailable: (RuntimeError,),
    errors.InvalidDevice: (ValueError,),
    errors.UnsupportedDtype: (TypeError, BufferError),
    errors.UnsupportedArray: (TypeError, BufferError),
    errors.ZeroCopyUnavailable: (BufferError, ValueError),
    errors.MemoryConversionError: (Exception,),
}


@pytest.mark.parametrize("code", BROKER)
def test_a_status_becomes_its_class(code):
    error = errors.from_status(SimpleNamespace(code=code, message="namespace 'a': full", reason="QUOTA", request=""))
    kind, builtin = BROKER[code]
    assert type(error) is kind
    assert isinstance(error, builtin) and isinstance(error, errors.BrokerError)
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert (str(each), each.code, each.reason) == ("namespace 'a': full", code, "QUOTA")
        assert type(each) is kind


@pytest.mark.parametrize("kind", CONVERSION)
def test_a_conversion_error_says_its_four_things(kind):
    error = kind("numpy", "torch", "hand_over", "because")
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert isinstance(each, (*CONVERSION[kind], errors.MemoryConversionError))
        said = "Cannot convert from numpy to torch: because" if kind.names_sides else "because"
        assert str(each) == errors.with_remedy(said, kind.remedy)
        assert (each.source_type, each.target_type, each.method, each.reason) == (
            "numpy",
            "torch",
            "hand_over",
            "because",
        )


def test_keywords_work_as_well():
    error = errors.UnsupportedDtype(source_type="a", target_type="b", method="place", reason="c")
    assert error.method == "place"


def test_a_refused_copy_carries_its_plan_through_a_pickle():
    plan = planner.Plan("numpy", "jax", "cpu", "place", None, 1, 8, False, "int8", ("layout: x",))
    again = pickle.loads(pickle.dumps(errors.ZeroCopyUnavailable("numpy", "jax", "hand_over", "layout: x", plan)))
    assert again.plan == plan


def test_a_missing_framework_names_its_module():
    assert pickle.loads(pickle.dumps(errors.FrameworkNotAvailable("array", "torch", "detect", "no"))).name == "torch"


def test_what_others_wrote_cannot_speak_to_the_terminal() -> None:
    """Names and dtypes are other processes' words: an error shows them as escapes, and keeps its own line ends."""
    error = errors.BrokerError("share '\x1b[31mred\u202e' is there\nlook again")
    assert str(error) == "share '\\x1b[31mred\\u202e' is there\nlook again"
    assert error.message == "share '\x1b[31mred\u202e' is there\nlook again"
    assert errors.printable("größe 日本") == "größe 日本"
    assert "\x1b" not in markdown(["dtype"], [["\x1b[2J"]])
