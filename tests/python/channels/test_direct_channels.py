# SPDX-License-Identifier: Apache-2.0
"""Channels whose one sender and one receiver need no call: the same arrays, however they come."""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from internals import delivery_of
from processes import start_daemon, stop_daemon

import arraybridge
from arraybridge import BrokerTimeout, ChannelClosed, InvalidRequest, _core
from arraybridge.adapters import numpy as numpy_adapter


@pytest.fixture
def reader(broker: arraybridge.Broker) -> Any:
    with arraybridge.Broker(broker.address, namespace=broker.namespace, start="never") as made:
        yield made


@pytest.fixture
def small() -> Iterator[str]:
    """The directory of a daemon with 32 MiB."""
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn", "--host-capacity", "32MiB", "--cache", "0")
        yield directory
        assert stop_daemon(daemon) == 0


def meet(broker: arraybridge.Broker, reader: arraybridge.Broker, capacity: int = 8) -> tuple[Any, Any]:
    """A channel with a direct channel."""
    receiver = reader.channel("c").open("receiver")
    sender = broker.channel("c", capacity=capacity).open("sender")
    for number in range(2000):
        sender.send(np.array([number]))
        assert receiver.receive().tolist() == [number]
        if reader.stats()["client_direct_shares"] > 0:
            return sender, receiver
    raise AssertionError("there never was a direct channel")


@pytest.mark.parametrize("without", ["sender", "receiver"])
def test_a_broker_without_direct_channels_sends_and_receives_by_calls(broker: arraybridge.Broker, without: str) -> None:
    other = arraybridge.Broker(broker.address, namespace=broker.namespace, start="never", direct_channels=False)
    again = pickle.loads(pickle.dumps(other))
    assert isinstance(again, arraybridge.Broker)
    with other, again:
        for calls in (other, again):
            before = broker.stats()["publishes_total"]
            sends, receives = (calls, broker) if without == "sender" else (broker, calls)
            with receives.channel("c").open("receiver") as receiver, sends.channel("c").open("sender") as sender:
                for number in range(300):  # with a direct channel a few would do: `meet`
                    sender.send(np.array([number]))
                    assert receiver.receive().tolist() == [number]
                for end in (calls, broker):
                    assert end.stats()["client_direct_shares"] == 0
            assert broker.stats()["publishes_total"] == before + 300


def test_direct_channels_is_true_or_false() -> None:
    with pytest.raises(InvalidRequest, match="direct_channels must be True or False, not 0.5"):
        arraybridge.Broker(direct_channels=0.5)  # type: ignore[arg-type]


def test_arrays_trees_and_frameworks_come_as_ever(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    torch = pytest.importorskip("torch")
    sender, receiver = meet(broker, reader)
    published = broker.stats()["publishes_total"]
    kept = []
    for number in range(200):
        sender.send(np.full((3, 5), number, dtype="i2"))
        kept.append(receiver.receive())
        assert kept[-1].dtype == "i2" and not kept[-1].flags.writeable
    assert [int(array[2, 4]) for array in kept] == list(range(200)), "nothing that is kept is overwritten"
    sender.send({"x": np.arange(5), "y": [np.ones(3)]})
    tree = receiver.receive()
    assert tree["x"].tolist() == [0, 1, 2, 3, 4] and tree["y"][0].tolist() == [1, 1, 1]
    sender.send(torch.arange(6).reshape(2, 3))
    tensor = receiver.receive("torch")
    tensor += 1  # its own
    assert tensor.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert broker.stats()["publishes_total"] == published
    born = broker.empty((4,), "float64")
    born[:] = 3
    sender.send(born)
    assert receiver.receive().tolist() == [3, 3, 3, 3]
    with pytest.raises(ValueError, match="read-only"):
        born[0] = 1


def test_large_trees_keep_their_place(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    sender, receiver = meet(broker, reader)
    for number in range(20):
        sender.send(np.array([number]))
        sender.send({f"a long name of leaf {leaf}": np.array([leaf]) for leaf in range(30)})
        sender.send(np.array([number + 1]))
        assert receiver.receive().tolist() == [number]
        assert len(receiver.receive()) == 30
        assert receiver.receive().tolist() == [number + 1]


class Exporting:
    """An array of an unknown class, which counts its exports."""

    def __init__(self, array: Any) -> None:
        self.array, self.exports = array, 0

    def __dlpack__(self, **wishes: Any) -> Any:
        self.exports += 1
        return self.array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_a_send_enters_the_extension_once_and_reads_each_array_once(
    broker: arraybridge.Broker, reader: arraybridge.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = meet(broker, reader)
    entered, exported = [], []

    def noting(kind: str, call: Any, notes: list[str]) -> Any:
        def noted(*rest: Any, **wishes: Any) -> Any:
            notes.append(kind)
            return call(*rest, **wishes)

        return noted

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a second call")

    sender.send(np.arange(2))  # afterwards arrays of this class are known to be ordinary
    full = arraybridge.Channel.send.__wrapped__  # type: ignore[attr-defined]
    noted_send = _core.FastMethod(noting("python", full, entered), "send")
    monkeypatch.setattr(arraybridge.Channel, "send", noted_send)
    monkeypatch.setattr(_core.ChannelEnd, "put", noting("tree", _core.ChannelEnd.put, entered))
    monkeypatch.setattr(numpy_adapter, "export", noting("numpy", numpy_adapter.export, exported))
    for other in ("empty", "place", "placement_of", "publish", "put"):
        monkeypatch.setattr(_core.Core, other, refused)
    sender.send(np.arange(3))
    assert entered == []
    foreign = Exporting(np.arange(4))
    sender.send({"x": np.arange(5), "y": [np.ones(3), foreign]})
    assert entered == ["python", "tree"] and exported == ["numpy", "numpy"] and foreign.exports == 1
    sender.send(np.ones(3), metadata=b"with bytes")
    assert entered == ["python", "tree"] * 2 and exported == ["numpy"] * 3
    assert receiver.receive().tolist() == [0, 1]
    assert receiver.receive().tolist() == [0, 1, 2]
    assert receiver.receive()["y"][1].tolist() == [0, 1, 2, 3]
    assert receiver.receive(info=True).metadata == b"with bytes"


def test_an_array_that_was_born_in_broker_memory_is_sent_as_it_is_and_frozen(
    broker: arraybridge.Broker, reader: arraybridge.Broker
) -> None:
    sender, receiver = meet(broker, reader)
    for number in range(3):  # the third room is made the short way
        array = broker.empty((2, 3), "float32")
        assert array.shape == (2, 3) and array.dtype == np.float32
        array[:] = number
        sender.send(array)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
        assert (receiver.receive() == number).all()
    for shape in ((), (0, 2), 4, (2, -1), (1,) * 65, "3"):
        try:
            made = broker.empty(shape, "float32")  # type: ignore[arg-type]
        except arraybridge.BrokerError as refused:
            assert shape in ((2, -1), (1,) * 65, "3"), refused
        else:
            assert made.shape == (shape if isinstance(shape, tuple) else (shape,))


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("relayed", [False, True], ids=["received", "relayed"])
def test_arrays_outlive_a_daemon_that_ends_in_order(relayed: bool, first: int) -> None:
    """Its sessions end although their processes live on and read what they hold: the sender must not use that memory again."""
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn")
        brokers = [arraybridge.Broker(directory, namespace="n", start="never") for _ in range(3)]
        for number in range(3):  # whose session ends first is not ours to choose
            brokers[(first + number) % 3].stats()
        sender, receiver = meet(*brokers[:2])
        relay, last = brokers[1].channel("second").open("sender"), brokers[2].channel("second").open("receiver")
        held = []
        for number in range(5):
            sender.send(np.full(2, float(number)))
            array = receiver.receive()
            if relayed:
                relay.send(array)
                array = last.receive()
            held.append(array)
        del array
        assert stop_daemon(daemon) == 0
        for number in range(10):
            with pytest.raises(arraybridge.BrokerUnavailable):
                sender.send(np.full(2, 90.0 + number))
            assert [one.tolist() for one in held] == [[float(value)] * 2 for value in range(5)]


def test_an_array_whose_framework_fails_is_received_the_careful_way(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    sender, receiver = meet(broker, reader)
    _, decided = delivery_of(reader).short["numpy"]
    for form, (plan, _show, count) in list(decided.items()):
        decided[form] = plan, refusing, count
    sender.send(np.arange(3))
    assert receiver.receive().tolist() == [0, 1, 2]
    sender.send(np.arange(4))
    assert next(receiver.receiver()).tolist() == [0, 1, 2, 3]


def refusing(view: Any) -> None:
    raise RuntimeError("the framework fails")


def test_a_slow_receiver_holds_its_sender_back(broker: arraybridge.Broker, reader: arraybridge.Broker) -> None:
    sender, receiver = meet(broker, reader, capacity=3)
    for number in range(3):
        sender.send(np.array([number]), timeout=0)
    with pytest.raises(BrokerTimeout):
        sender.send(np.array([3]), timeout=0.02)
    with sender:
        later = threading.Thread(target=lambda: sender.send(np.array([3])))
        later.start()
        assert [receiver.receive()[0] for _ in range(4)] == [0, 1, 2, 3]
        later.join()
    with pytest.raises(ChannelClosed):
        receiver.receive()


def test_memory_comes_back_however_little_there_is(small: str) -> None:
    """Receivers tell nobody when they let go: a sender that is short of memory looks by itself."""
    with arraybridge.Broker(small, start="never") as broker, arraybridge.Broker(small, start="never") as reader:
        sender, receiver = meet(broker, reader)
        large = np.zeros(5 << 20, dtype="u1")
        done = threading.Event()

        def receives() -> None:
            while not done.is_set():
                try:
                    held = receiver.receive(timeout=0.05)
                except BrokerTimeout:
                    continue
                assert held.nbytes == large.nbytes
                done.wait(0.005)

        thread = threading.Thread(target=receives)
        thread.start()
        for _ in range(40):
            sender.send(large)
        done.set()
        thread.join()
