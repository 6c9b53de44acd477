# SPDX-License-Identifier: Apache-2.0
"""The docstrings of the calls that a user meets first end with an example of one or two lines, which works."""

import doctest
from typing import Any

import numpy as np
import pytest

import arraybridge
from arraybridge import Broker, Channel, Share, convert_memory

pytest.importorskip("torch", reason="torch is not installed")

FIRST = [
    Broker,
    Broker.put,
    Broker.get,
    Broker.empty,
    Broker.convert,
    Broker.channel,
    Broker.open,
    Broker.list,
    Broker.withdraw,
    Broker.watch,
    Channel.send,
    Channel.receive,
    Share,
    convert_memory,
    arraybridge.detect_memory_type,
    arraybridge.to_bytes,
    arraybridge.from_bytes,
    arraybridge.stack_slices,
]


@pytest.mark.parametrize("thing", FIRST, ids=lambda thing: thing.__qualname__)
def test_an_example_works(thing: Any, broker: Broker) -> None:
    text = thing.__doc__
    names = {"np": np, "arraybridge": arraybridge, "Broker": Broker, "convert_memory": convert_memory, "broker": broker}
    with broker.channel("frames") as frames:
        test = doctest.DocTestParser().get_doctest(text, {**names, "frames": frames}, thing.__qualname__, None, None)
        written = "".join(each.source for each in test.examples)
        assert len(written.splitlines()) in (1, 2), "one or two lines"
        last = test.examples[-1]
        assert text.rstrip().endswith((last.want or last.source).splitlines()[-1].rstrip()), "at the end"
        said: list[str] = []
        outcome = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
        assert outcome.failed == 0 and outcome.attempted == len(test.examples), "".join(said)
