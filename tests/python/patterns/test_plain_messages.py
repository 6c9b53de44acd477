# SPDX-License-Identifier: Apache-2.0
"""Messages without arrays, and metadata that is a tree: the same values in every process, by every way."""

import dataclasses
import datetime
import enum

import numpy as np
import pytest

import arraybridge
from arraybridge import InvalidRequest
from arraybridge.broker.patterns import metadata as metadata_of


class Kind(enum.Enum):
    START = "start"
    STOP = "stop"


@dataclasses.dataclass
class Command:
    kind: Kind
    gain: float
    tags: list[str]


MESSAGES = [
    {"gain": 2.0},
    {"classes": ["a", "b"], "none": None, "flag": True},
    [],
    {},
    (),
    [1, 2, [3, "four", b"\x00\xff", 1 + 2j, float("inf")]],
    {"at": datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)},
    Command(Kind.STOP, 0.5, ["x"]),
]


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_message_is_put_and_got(broker, message):
    share = broker.put(message, "message")
    assert broker.get("message") == message
    assert broker.get("message", "torch") == message
    assert share.to("numpy") == message
    assert type(broker.get("message")) is type(message)


@pytest.mark.parametrize("direct", [True, False])
def test_messages_and_arrays_alternate_in_one_channel(address, broker, direct):
    """More than the calls after which a queue of two ends becomes a direct channel."""
    with arraybridge.Broker(address, namespace=broker.namespace, start="never", direct_channels=direct) as other:
        sending, receiving = other.channel("mixed").open("sender"), broker.channel("mixed").open("receiver")
        for number in range(40):
            sending.send({"number": number})
            sending.send(np.full(3, number))
            assert receiving.receive(timeout=60) == {"number": number}
            assert receiving.receive(timeout=60).tolist() == [number] * 3


def test_another_process_sends_and_receives_them(broker, client):
    program = (
        "import sys, arraybridge\n"
        "broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
        "with broker.channel('answers') as answers:\n"
        "    for command in broker.channel('commands'):\n"
        "        answers.send({'got': command, 'gain': command['gain'] * 2}, metadata={'by': 'client', 'n': (1, 2)})\n"
    )
    with broker.channel("commands") as commands:
        commands.send({"gain": 2.0})
        commands.send({"gain": 3.5, "more": [None]})
    client(program, broker.namespace)
    answers = broker.channel("answers")
    first, second = (answers.receive(info=True, timeout=60) for _ in range(2))
    assert first.array == {"got": {"gain": 2.0}, "gain": 4.0}
    assert second.array == {"got": {"gain": 3.5, "more": [None]}, "gain": 7.0}
    assert first.metadata == {"by": "client", "n": (1, 2)}


@pytest.mark.parametrize("value", [{"camera": 3}, 7, 0, "left", 2.5, True, [1, None], ("a", {"b": b"c"}), b"", b"bytes"], ids=repr)
def test_metadata_is_bytes_or_a_tree(broker, value):
    channel = broker.channel("labelled")
    channel.send(np.ones(3), metadata=value)
    received = channel.receive(info=True, timeout=60)
    assert received.metadata == value and type(received.metadata) is type(value)
    assert broker.put(np.ones(3), "labelled", metadata=value).metadata == value
    assert broker.get("labelled", info=True).share.metadata == value


def test_received_metadata_can_be_sent_on(broker):
    channel, onward = broker.channel("in"), broker.channel("out")
    channel.send({"a": 1}, metadata={"camera": 3})
    received = channel.receive(info=True, timeout=60)
    onward.send(received.array, metadata=received.metadata)
    assert onward.receive(info=True, timeout=60).metadata == {"camera": 3}


def test_bytes_that_are_no_tree_stay_bytes():
    for other in (b"", b"arraybridge.metadata", metadata_of.MARK, metadata_of.MARK + b"{", metadata_of.MARK + b'{"l":[0]}'):
        assert metadata_of.decoded(other) == other
    with pytest.raises(InvalidRequest, match="must not begin with"):
        metadata_of.encoded(metadata_of.MARK + b"{}")


def test_no_metadata_is_no_bytes(broker):
    channel = broker.channel("bare")
    channel.send(np.ones(3))
    channel.send(np.ones(3), metadata=None)
    assert [channel.receive(info=True, timeout=60).metadata for _ in range(2)] == [b"", b""]


def test_a_long_message_without_arrays_is_stored_as_a_bundle(broker):
    """Beyond 32 KiB of structure, as other trees; beyond 8 MiB the error says what to do."""
    message = {"lines": ["x" * 100] * 1000}
    share = broker.put(message, "log")
    assert len(share.specs) > 1 and broker.get("log") == message
    channel = broker.channel("logs")
    channel.send(message)
    assert channel.receive(timeout=60) == message
    with pytest.raises(InvalidRequest, match="long text and bytes as arrays"):
        channel.send({"text": "x" * (9 << 20)})


def test_explain_and_info_of_a_message(broker):
    broker.put({"gain": 2.0}, "message")
    got = broker.get("message", explain=True)
    assert got.array == {"gain": 2.0} and got.plan.zero_copy


def test_a_reader_that_knows_no_trees_finds_one_empty_array(broker):
    """What clients in C and C++, and over gRPC, see: a structure, and an array of no bytes."""
    share = broker.put({"gain": 2.0}, "message")
    [spec] = share.specs
    assert (spec.dtype, spec.shape) == ("uint8", (0,))
    _, views = broker._connection.ask(lambda core: core.acquire("message"))
    assert [view.nbytes for view in views] == [0]
