# SPDX-License-Identifier: Apache-2.0
"""Every error is also the builtin a user would guess, says what it means, and pickles."""

import pickle
import traceback
from types import SimpleNamespace

import numpy as np
import pytest
from internals import raw_core

from arraybridge import Broker, _core, callers, errors, planner
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
    plan = planner.Plan("share", "torch", "cpu", "place", "host", 1, 8, False, "d\u2066", ("dtype: d\x1b\u2066 by value only",))
    assert str(plan).endswith("(dtype: d\\x1b\\u2066 by value only)") and str(plan).isprintable()
    with pytest.warns(errors.CopyWarning, match=r"^d\\x1b\\u2066$"):
        callers.warn("d\x1b\u2066", errors.CopyWarning)


TURNS = "\u202e\u2066\u2069\u061c\u200f"


def test_errors_of_the_broker_cannot_speak_to_the_terminal(broker: Broker) -> None:
    """The broker takes names that turn the direction of writing: each error that names one shows escapes."""
    name = f"n{TURNS}"
    broker.put(np.zeros(3), name)
    channel = broker.channel(name, 4).open("sender")
    calls = {
        errors.ShareExists: lambda: broker.put(np.zeros(3), name),
        errors.ShareNotFound: lambda: broker.get(f"other{TURNS}"),
        errors.BrokerTimeout: lambda: broker.get(f"other{TURNS}", wait=0.01),
        errors.InvalidRequest: lambda: broker.channel(name, 7).open("receiver"),
        KeyError: lambda: broker.bundle(None, {name: np.zeros(3)}).fill()[f"other{TURNS}"],
    }
    for kind, call in calls.items():
        with pytest.raises(kind) as caught:
            call()
        for shown in (str(caught.value), repr(caught.value), "".join(traceback.format_exception_only(caught.value)).rstrip("\n")):
            assert "\\u202e" in shown and shown.isprintable(), shown
    channel.close()


def test_a_dtype_of_another_process_cannot_speak_to_the_terminal(broker: Broker) -> None:
    raw_core(broker).put("d", [_core.wrap(np.zeros(3, "u1")).named(f"d\x1b[2J{TURNS}")], _core.PutOptions())
    share = broker.list()[0].share
    view = share.view()
    shown = [repr(share), repr(view), share._repr_html_(), view._repr_html_()]
    for call in (lambda: np.from_dlpack(view), view.__arrow_c_array__, lambda: broker.get("d")):
        with pytest.raises((BufferError, errors.UnsupportedDtype)) as caught:
            call()
        shown.append(str(caught.value))
    for text in shown:
        assert "\\u202e" in text and text.isprintable(), text
