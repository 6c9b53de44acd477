# SPDX-License-Identifier: Apache-2.0
"""A repr shows what is known in this process: it makes no call, so it neither blocks nor raises."""

import html.parser
import signal
import tempfile
from typing import Any

import numpy as np
from processes import Client, start_daemon

from arraybridge import Broker, asdlpack
from arraybridge.broker.share import Share
from arraybridge.notebook.facts import table_of

HOSTILE = '<script>alert("x")</script>&\u202e'


class Cells(html.parser.HTMLParser):
    """The texts of a table, by their row; `tags` are all tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "td":
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data

    @property
    def rows(self) -> dict[str, str]:
        return dict(zip(self.texts[::2], self.texts[1::2], strict=True))


def facts(thing: Any) -> dict[str, str]:
    cells = Cells(thing._repr_html_())
    assert cells.tags <= {"div", "b", "table", "tr", "td", "svg", "polyline", "image"}
    return cells.rows


def test_a_share_shows_its_arrays_and_the_broker_that_holds_it(broker: Broker) -> None:
    share = broker.put(np.zeros((2, 3), "f4"), "frame")
    assert repr(share) == f"<Share 'frame' generation {share.generation}: float32 (2, 3) on cpu, 24 bytes>"
    assert facts(share) == {
        "generation": str(share.generation), "arrays": "float32 (2, 3)", "device": "cpu", "bytes": f"24, in the broker's memory {share.nbytes}",
        "namespace": broker.namespace, "held by": f"the broker at {broker.address}",
    }  # fmt: skip


def test_a_share_of_many_arrays_shows_the_first(broker: Broker) -> None:
    share = broker.put([np.zeros(each) for each in range(1, 21)], "many")
    assert "float64 (1,), float64 (2,), float64 (3,) and 17 more on cpu, 1680 bytes" in repr(share)
    assert facts(share)["arrays"].endswith("float64 (16,) and 4 more")


def test_a_view_shows_its_memory(broker: Broker) -> None:
    view = broker.put(np.zeros((2, 3), "f4"), "frame").view()
    assert repr(view) == "<View float32 (2, 3) on cpu, 24 bytes, read-only, memory of a share>"
    assert facts(view) == {
        "dtype": "float32", "shape": "(2, 3)", "strides": "(3, 1)", "device": "cpu", "bytes": "24", "access": "read-only",
        "held by": "a share",
    }  # fmt: skip
    own = asdlpack(np.zeros((4, 2))[:, 0])
    assert repr(own) == "<View float64 (4,) on cpu, 32 bytes, writable>"
    assert facts(own)["strides"] == "(2,)" and "held by" not in facts(own)


def test_a_view_and_a_bundle_show_pictures(broker: Broker) -> None:
    assert "<polyline" in broker.put(np.arange(100), "line").view()._repr_html_()
    assert "<image" in broker.put(np.zeros((20, 30, 3), "u1"), "image").view()._repr_html_()
    arrays = {f"array {number:02}": np.arange(number) for number in range(40)}
    broker.bundle("many", {HOSTILE.replace("\u202e", ""): np.ones((3, 3)), **arrays}).fill().publish()
    shown = broker.open("many")._repr_html_()
    cells = Cells(shown)
    assert "script" not in cells.tags and shown.count("<tr>") == 34 and "and 9 more" in cells.texts[-1]
    assert cells.texts[:5] == [HOSTILE.replace("\u202e", ""), "float64", "(3, 3)", "72", "cpu"]
    assert "<image" in shown and "<polyline" in shown


def test_a_listing_shows_its_shares(broker: Broker) -> None:
    name = HOSTILE.replace("\u202e", "")
    broker.put(np.zeros((2, 3), "f4"), name)
    broker.put([np.zeros(2), np.zeros(3)], "tree")
    listed = broker.list()
    assert isinstance(listed, list) and len(listed) == 2
    cells = Cells(listed._repr_html_())  # type: ignore[attr-defined]
    assert cells.tags <= {"div", "b", "table", "tr", "td", "th"}
    assert cells.texts[:2] == [name, "float32 (2, 3)"] and "float64 (2,), float64 (3,)" in cells.texts
    assert Cells(broker.list("nothing")._repr_html_()).texts == []  # type: ignore[attr-defined]
    for number in range(40):
        broker.put(np.zeros(1), f"x{number}")
    assert "and 10 more" in broker.list()._repr_html_()  # type: ignore[attr-defined]


def test_names_of_others_are_text(broker: Broker) -> None:
    name = HOSTILE.replace("\u202e", "")
    share = broker.put(np.zeros(1), name)
    channel = broker.channel(name)
    for thing in (share, channel):
        assert "<script>" not in thing._repr_html_() and facts(thing)
    assert "\\u202e" in repr(broker.channel(HOSTILE)) and "\u202e" not in broker.channel(HOSTILE)._repr_html_()
    structured = broker.put(np.zeros(1, [(name, "f4")]), "structured")
    assert "<script>" not in structured._repr_html_() and "structured (1, 4)" in repr(structured)
    far = Broker(f"/{HOSTILE}", namespace=HOSTILE, start="never")
    assert facts(far)["address"].startswith("not connected, to /<script>") and "<script>" not in far._repr_html_()
    assert table_of(HOSTILE, [(HOSTILE, HOSTILE)]).count("&lt;script&gt;") == 3


def test_a_channel_shows_its_ends(broker: Broker) -> None:
    channel = broker.channel("frames")
    assert repr(channel) == f"<Channel 'frames' of namespace {broker.namespace!r}, not open>"
    assert facts(channel)["capacity"] == "unknown before an end is open"
    assert "not open, capacity 4>" in repr(broker.channel("four", 4))
    channel.open("sender").open("receiver")
    assert repr(channel).endswith(", sender and receiver, capacity 16>")
    assert facts(channel) == {
        "namespace": broker.namespace, "state": "sender and receiver", "capacity": "16", "broker": broker.address,
        "mode": "as stated by other ends, else queue",
    }  # fmt: skip
    channel.close()
    assert repr(channel).endswith(", closed>") and facts(channel)["state"] == "closed"


def test_a_broker_shows_its_address_once_it_is_connected(address: str) -> None:
    with Broker(address, start="never", token="0123456789abcdef") as broker:
        assert repr(broker) == "<Broker namespace 'default', not connected>"
        assert facts(broker)["address"] == f"not connected, to {address}"
        broker.list()
        assert repr(broker) == f"<Broker namespace 'default', at {address}>"
        assert facts(broker) == {"namespace": "default", "address": address, "start": "never", "timeout_s": "10.0"}
        assert "0123456789abcdef" not in broker._repr_html_() + repr(broker)
    assert "not connected" in repr(broker) and facts(broker)["address"] == f"not connected, to {address}"


def things(broker: Broker) -> list[Any]:
    return [broker, broker.put(np.zeros(2), "a"), broker.channel("c").open("sender"), broker.channel("d")]


def test_nothing_is_asked_of_a_broker_that_does_not_answer() -> None:
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn")
        broker = Broker(directory, start="never")
        shown = things(broker)
        daemon.send_signal(signal.SIGSTOP)  # a call would wait for 10 s, and then raise
        calls: list[str] = []
        for thing in shown:
            calls += [repr(thing), thing._repr_html_()]
        assert len(calls) == 8
        daemon.kill()
        daemon.wait()
        assert calls == [text for thing in shown for text in (repr(thing), thing._repr_html_())]
        broker.close()
        assert [repr(thing) for thing in shown[1:]] == calls[2::2]


def test_a_forked_child_shows_no_ends_of_its_parent(client: Client) -> None:
    code = """if True:
        import os, sys
        import numpy as np
        import arraybridge
        broker = arraybridge.Broker(sys.argv[1], namespace="forks", start="never")
        share, channel = broker.put(np.zeros(2), "a"), broker.channel("c").open("sender")
        before = repr(share), repr(broker), share._repr_html_(), broker._repr_html_()
        assert "sender" in repr(channel)
        child = os.fork()
        if child == 0:
            after = repr(share), repr(broker), share._repr_html_(), broker._repr_html_()
            print(after == before, repr(channel), channel._repr_html_().count("not open"), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """
    assert client(code) == "True <Channel 'c' of namespace 'forks', not open> 1\n"


def test_a_share_that_was_unpickled_shows_the_same(broker: Broker) -> None:
    share = broker.put(np.zeros(2), "sent")
    make, arguments = share.__reduce__()
    again = make(*arguments)
    assert isinstance(again, Share) and repr(again) == repr(share) and again._repr_html_() == share._repr_html_()
