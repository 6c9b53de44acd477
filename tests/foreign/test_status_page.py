# SPDX-License-Identifier: Apache-2.0
"""The status page in a real browser: what it shows of memory, channels, names and lives, and that nothing else is asked or run.

tests/docs/test_status_guides.py drives it to the process that holds the memory and the stage that stands still.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, MISSING, Browser
from foreign_client import PATIENCE_S, Daemon, Lifeline, Session, eventually
from test_channels import open_end, send
from test_hostile_text import acting
from test_http import url

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)

DRAWN = "document.body.classList.contains('is-live')"
SHOWS_NAMES = ("--http", "127.0.0.1:0", "--http-namespaces", "--log-format", "json")
HOLDERS = "[...document.querySelectorAll('#memory tbody tr')].map(row => [...row.cells].map(cell => cell.title || cell.innerText))"

AREAS = """[...document.querySelectorAll('.treemap rect.named')].map(rect => [
  rect.parentNode.firstChild.textContent.split(':')[0], rect.width.baseVal.value * rect.height.baseVal.value])"""


@pytest.fixture
def daemon(start: Callable[..., Daemon]) -> Daemon:
    return start(*SHOWS_NAMES)


@pytest.fixture
def browse(tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    browsers: list[Browser] = []

    def opened(width: int = 1200, height: int = 900) -> Browser:
        browsers.append(Browser(tmp_path / f"browser{len(browsers)}", width, height))
        return browsers[-1]

    yield opened
    for browser in browsers:
        browser.close()


def show(browser: Browser, daemon: Daemon) -> None:
    browser.open(url(daemon) + "/")
    browser.until("the live view is drawn", DRAWN)


def holders(browser: Browser) -> list[list[str]]:
    """The rows of the memory's table: user, process, name, exact bytes, percent."""
    return list(browser.evaluate(HOLDERS))


def reads(browser: Browser) -> int:
    """How often the page has read the daemon's counts."""
    return sum(address.endswith("/stats.json") for address in browser.requested())


def exactly(text: str) -> int:
    return int(text.replace(",", "").removesuffix(" bytes"))


def test_without_scripts_it_is_the_daemons_tables(
    daemon: Daemon, open_session: Callable[..., Session], browse: Callable[..., Browser]
) -> None:
    open_session(daemon).publish("one", bytes(1 << 20))
    browser = browse()
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(url(daemon) + "/")
    text = browser.text()
    for words in ("arraybridged", "Memory", "Users", "Requests", "Publish", "MiB"):
        assert words in text
    # Every table was parsed: all rows have as many cells as the first.
    counts = browser.evaluate("[...document.querySelectorAll('table')].map(t => [...t.rows].map(row => row.cells.length))")
    assert counts and all(len(rows) >= 2 and len(set(rows)) == 1 for rows in counts), counts
    assert browser.evaluate("document.getElementById('live').childNodes.length") == 0
    # It is read again by itself.
    open_session(daemon).publish("two", bytes(1 << 20))
    browser.until("the second share is counted", r"/\s2\s+2\.0 MiB/.test(document.getElementById('tables')?.innerText)")
    assert browser.problems() == []


def test_it_asks_its_own_server_alone_and_its_policy_blocks_nothing(
    daemon: Daemon, open_session: Callable[..., Session], browse: Callable[..., Browser]
) -> None:
    open_session(daemon).publish("one", bytes(1 << 20))
    browser = browse()
    show(browser, daemon)
    eventually("it is read again", lambda: reads(browser) > 2)
    assert {page for page in browser.requested() if not page.startswith(url(daemon) + "/")} == set()
    assert browser.problems() == []
    # The policy would block what a hostile name might bring in, and that would be seen here.
    browser.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hit = 1'}))")
    browser.evaluate("document.body.append(Object.assign(document.createElement('img'), {src: 'http://127.0.0.1:1/elsewhere'}))")
    browser.evaluate("document.body.append(Object.assign(document.createElement('div'), {innerHTML: '<p style=\"color: red\">'}))")
    browser.evaluate("fetch('http://127.0.0.1:1/elsewhere').catch(() => 0)")
    assert browser.evaluate("window.hit") is None
    assert len(browser.problems()) >= 4


HOSTILE = [
    "<b>bold</b><script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "n\u202e\u2066\u200f'\"&amp;</td>",
    "ü" * 127,
]


def test_hostile_names_are_text(daemon: Daemon, open_session: Callable[..., Session], browse: Callable[..., Browser]) -> None:
    session = open_session(daemon, client="<b>\u202e\x1b[2Jclient</b>")
    for name in HOSTILE:
        session.publish(name, bytes(3 << 20))
    for name in HOSTILE[:3]:
        send(session, open_end(session, "SENDER", name).channel, bytes(100))
        open_end(session, "RECEIVER", name)
    browser = browse()
    show(browser, daemon)
    browser.until_text(HOSTILE[0], "#names")
    for part in ("#memory", "#names", "#pipeline"):
        browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        text = browser.text(part)
        assert HOSTILE[0] in text and HOSTILE[1] in text and "n\\u202e\\u2066\\u200f'\"&amp;</td>" in text, part
    assert "ü" * 127 in browser.text("#names")
    assert "<b>\\u202e\\x1b[2Jclient</b>" in browser.text("#sessions")
    assert browser.evaluate("document.querySelectorAll('#live :is(script, img)').length") == 0
    assert browser.evaluate("[...document.querySelectorAll('#live b')].filter(each => each.innerText === 'bold').length") == 0
    assert browser.evaluate("window.hit") is None
    assert not acting(browser.evaluate("document.documentElement.outerHTML"))
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.problems() == []


def publish_many(session: Session, count: int) -> None:
    """Many shares in one arena."""
    allocated = session.call("Allocate", namespace="default", size=256 * count)
    redeemed, descriptor = session.lifeline.redeem(allocated.ticket)
    os.close(descriptor)
    session.call("Mapped", arena=redeemed.handle.arena)
    spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [256], "size": 256}
    fields = {"namespace": "default", "arena": redeemed.handle.arena, "arena_generation": redeemed.handle.generation, "size": 256}
    calls = []
    for number in range(count):
        calls.append(session.begin("Publish", name=f"item{number:05}", offset=256 * number, specs={"arrays": [spec]}, **fields))
        if len(calls) == 256:
            for call in calls:
                call.result()
            calls.clear()
    for call in calls:
        call.result()


def test_it_stays_small_with_ten_thousand_shares_and_five_hundred_sessions(
    start: Callable[..., Daemon], open_session: Callable[..., Session], browse: Callable[..., Browser], generated: tuple[Any, Any]
) -> None:
    daemon = start(*SHOWS_NAMES, sessions_per_uid="600")
    lines = [Lifeline(daemon, generated[0], client=f"worker{number}") for number in range(498)]
    publish_many(open_session(daemon, client="many"), 10_000)
    open_session(daemon, client="large").publish("the large one", bytes(64 << 20))
    browser = browse()
    show(browser, daemon)
    browser.until_text("of 10001 names are not drawn one by one", "#memory")
    assert "Most is held by large" in browser.text("#memory")
    assert ["the large one", "67,108,864 bytes"] in [row[2:4] for row in holders(browser)], "its shares are asked for by themselves"
    assert "The 200 sessions that hold the most; 300 others hold" in browser.text("#sessions")
    assert browser.evaluate("document.querySelectorAll('*').length") < 6000
    # Typing asks the daemon, which knows all names.
    browser.evaluate(
        "(box => { box.focus(); box.value = 'item0999'; box.dispatchEvent(new Event('input')); })(document.getElementById('filter'))"
    )
    browser.until_text("10 names.", "#names")
    assert "item09990" in browser.text("#names") and "item00000" not in browser.text("#names")
    # Each further reading asks five questions, and now and then more of the shares. The reader's place stays.
    asked = len(browser.requested())
    before = reads(browser)
    eventually("it is read twice more", lambda: reads(browser) >= before + 2)
    assert len(browser.requested()) - asked <= (reads(browser) - before + 1) * (5 + 40)
    assert browser.evaluate("document.activeElement.id") == "filter"
    for line in lines:
        line.socket.close()


def test_the_boxes_add_up_to_the_charged_bytes(
    daemon: Daemon, open_session: Callable[..., Session], browse: Callable[..., Browser]
) -> None:
    ends = open_session(daemon, client="ends")
    ends.publish("left behind", bytes(5 << 20))
    ends.close()
    first, second = open_session(daemon, client="first"), open_session(daemon, client="second")
    for number in range(20):
        first.publish(f"array{number}", bytes(100_000 * (number + 1)))
    send(second, open_end(second, "SENDER").channel, bytes(3 << 20))
    browser = browse()
    show(browser, daemon)
    browser.until_text("ended processes", "#memory")
    *rows, total = holders(browser)
    assert total[2] == "CHARGED" and sum(exactly(row[3]) for row in rows) == exactly(total[3]) == first.call("GetStats").charged_bytes
    assert ["ended processes", "left behind"] in [row[1:3] for row in rows]
    first_rows = [row[2] for row in rows if row[1].startswith("first ")]
    assert "array19" in first_rows and "8 smaller names" in first_rows
    assert [row[2] for row in rows if row[1].startswith("second ")] == ["queued in channel 'frames'"]
    # The areas of the picture are as those bytes.
    areas = dict(browser.evaluate(AREAS))
    largest = areas["array19"] / 2_000_000
    assert len(areas) >= 10 and all(
        areas[f"array{number}"] == pytest.approx(largest * 100_000 * (number + 1), rel=0.02) for number in range(9, 20)
    )


def test_services(daemon: Daemon, open_session: Callable[..., Session], browse: Callable[..., Browser]) -> None:
    server, asker = open_session(daemon, client="server"), open_session(daemon, client="asker")
    open_end(server, "RECEIVER", "frames")
    browser = browse()
    show(browser, daemon)
    browser.until_text("frames", "#pipeline")
    assert browser.evaluate("document.getElementById('services').hidden")
    for name in ("a/<b>detect", "a/<b>detect", "idle"):
        open_end(server, "RECEIVER", f"service/{name}/tickets", capacity=5)
    tickets = open_end(asker, "SENDER", "service/a/<b>detect/tickets").channel
    for _ in range(3):
        send(asker, tickets, bytes(8))
    browser.until_text("3 of 5", "#services")
    cells = "[...document.querySelectorAll('#services tbody tr')].map(row => [...row.cells].map(each => each.innerText))"
    rows = browser.evaluate(cells)
    assert [row[:5] for row in rows] == [["a/<b>detect", "default", "2", "1", "3 of 5"], ["idle", "default", "1", "0", "0 of 5"]]
    assert rows[0][5] != "–" and rows[1][5] == "–"


def test_what_is_the_cause_and_what_is_held_back(
    daemon: Daemon, open_session: Callable[..., Session], browse: Callable[..., Browser]
) -> None:
    source, relay, sink = (open_session(daemon, client=name) for name in ("source", "relay", "sink"))
    for first, last, name in ((source, relay, "raw"), (relay, sink, "cooked")):
        end = open_end(first, "SENDER", name, capacity=2).channel
        open_end(last, "RECEIVER", name)
        for _ in range(2):
            send(first, end, bytes(1000))
    left = open_end(source, "SENDER", "unread").channel
    send(source, left, bytes(1000))
    browser = browse()
    show(browser, daemon)
    process = f"(process {os.getpid()})"
    browser.until_text("No process receives from channel 'unread'; 1 array", "#alerts")
    browser.until_text(f"Stands still: sink {process} has taken nothing from channel 'cooked' for 1", "#pipeline")  # after 10 s
    alerts = browser.text("#alerts")
    assert f"Held back: relay {process} takes nothing from channel 'raw', because it waits for room in channel 'cooked'." in alerts
    assert alerts.count("Stands still:") == 1 and "2 arrays (2.0 KiB) wait, the oldest for" in alerts
    assert browser.evaluate("[...document.querySelectorAll('.node.process.bad .name')].map(each => each.textContent)") == ["sink"]
    names = "[...document.querySelectorAll('.node.channel.bad .name')].map(each => each.textContent)"
    assert browser.evaluate(names) == ["cooked"]
    # When it takes something, there is room for the relay, which stands still all the same.
    end = open_end(sink, "RECEIVER", "cooked").channel
    assert sink.call("Receive", channel=end).shares
    browser.until_text(f"Stands still: relay {process} has taken nothing from channel 'raw'", "#alerts")
    assert "Stands still: sink" not in browser.text("#alerts")


def test_names_are_hidden_unless_the_configuration_shows_them(
    start: Callable[..., Daemon], open_session: Callable[..., Session], browse: Callable[..., Browser]
) -> None:
    daemon = start("--http", "127.0.0.1:0", "--log-format", "json")
    open_session(daemon, client="a client").publish("secret", bytes(1 << 20))
    browser = browse()
    show(browser, daemon)
    text = browser.text()
    assert "http.namespaces = true" in text and "--http-namespaces" in text and "1.0 MiB of " in text
    assert "secret" not in text and "a client" not in text
    assert browser.evaluate("['pipeline', 'sessions'].every(id => document.getElementById(id) === null)")
    assert not browser.evaluate("document.getElementById('names').checkVisibility()") and "Requests" in browser.text("#tables")
    assert browser.problems() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_small_screen_needs_no_sideways_scrolling(
    scheme: str, daemon: Daemon, open_session: Callable[..., Session], browse: Callable[..., Browser], tmp_path: Path
) -> None:
    session = open_session(daemon, client="a client with quite a long name")
    session.publish("one", bytes(3 << 19))
    send(session, open_end(session, "SENDER").channel, bytes(1000))
    open_end(session, "RECEIVER")
    browser = browse(390, 844)
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    show(browser, daemon)
    browser.until_text("one", "#names")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    # Boxes of the pipeline follow one another downwards.
    places = browser.evaluate("[...document.querySelectorAll('.pipeline .node > rect:first-of-type')].map(r => r.y.baseVal.value)")
    assert len(places) == 2 and len(set(places)) == 2
    ink, paper = browser.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    assert (sum(map(int, re.findall(r"\d+", ink))) < sum(map(int, re.findall(r"\d+", paper)))) == (scheme == "light")
    browser.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_next_daemon_goes_on_on_the_open_page(
    start: Callable[..., Daemon], open_session: Callable[..., Session], browse: Callable[..., Browser]
) -> None:
    daemon = start(*SHOWS_NAMES, "--keeper")
    open_session(daemon, client="maker").publish("kept", bytes(1 << 20))
    browser = browse()
    show(browser, daemon)
    browser.until_text("kept", "#names")
    daemon.kill_below_keeper()
    browser.until_text("life 2 goes on with the arrays of the one before", "#lives")
    lives = browser.text("#lives")
    assert re.search(r"the life before was ended by\s+signal 9", lives), lives
    assert re.search(r"taken over from it\s+1 array, 1 session, ", lives), lives
    browser.until("the silence is over", "document.getElementById('silence').hidden")
    assert "kept" in browser.text("#names") and "The daemon waits for 1 client of the life before." in browser.text("#alerts")
    assert browser.problems() == []


def test_a_daemon_that_is_gone_and_another_one_at_its_place(
    start: Callable[..., Daemon], open_session: Callable[..., Session], browse: Callable[..., Browser], tmp_path: Path
) -> None:
    daemon = Daemon(tmp_path / "killed", *SHOWS_NAMES)
    session = open_session(daemon, client="maker")
    session.publish("gone", bytes(1 << 20))
    address = url(daemon)
    browser = browse()
    show(browser, daemon)
    browser.until_text("gone", "#names")
    session.close()
    daemon.process.kill()
    daemon.process.wait(PATIENCE_S)
    browser.until("it says so", "/not answered for [1-9]\\d* s; trying again/.test(document.getElementById('silence').innerText)")
    assert "gone" in browser.text("#names"), "the last picture stays"
    start("--http", address.removeprefix("http://"), *SHOWS_NAMES[2:])
    browser.until_text("another broker, without the arrays of this one", "#lives")
    browser.until("the names are read again", "!document.getElementById('names').innerText.includes('gone')")
    assert browser.evaluate("document.getElementById('silence').hidden")
    assert browser.problems() == []


MIB = str(1 << 20)
ALERTS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "Nothing needs attention."),
    "draining": ({"info": {"draining": True}}, "Draining: The daemon accepts no new work."),
    "device": (
        {
            "info": {
                "devices": [
                    {
                        "device": {"type": 2, "id": 1, "uuid": "GPU-7"},
                        "out_of_service": True,
                        "refused": [
                            {"cause": "REFUSAL_CAUSE_HARDWARE", "why": "no"},
                            {"cause": "REFUSAL_CAUSE_FAILED", "why": "it fell off the bus"},
                        ],
                    }
                ]
            }
        },
        "Out of service: Device cuda:1 GPU-7: it fell off the bus.",
    ),
    "quota": (
        {"namespaces": [{"namespace": "default", "uid": 7, "quota_bytes": "100", "charged_bytes": "91"}]},
        "Quota: Namespace 'default' of user 7 has used 91.0 % of its quota of 100 B.",
    ),
    "quota of a shared namespace": (
        {"namespaces": [{"namespace": "team", "shared": True, "quota_bytes": MIB, "charged_bytes": MIB}]},
        "Quota: Namespace 'team' of several users has used 100 % of its quota of 1.0 MiB.",
    ),
    "quota in order": ({"namespaces": [{"namespace": "default", "quota_bytes": "100", "charged_bytes": "90"}]}, "Nothing needs attention."),
    "awaited": ({"sessions": [{"awaited": True}, {}, {"awaited": True}]}, "Awaited: The daemon waits for 2 clients of the life before."),
    "lost": ({"info": {"life": {"lost_shares": "3"}}}, "Lost: 3 named arrays of the life before could not be taken over."),
    "store": ({"info": {"life": {"store_entries": "46", "store_entries_max": "50"}}}, "Store: 46 of at most 50 descriptors"),
    "no keeper": ({"info": {"life": {"holder": "HOLDER_NONE"}}}, "No keeper: If the daemon is killed now, all arrays are lost."),
    "keeper": ({"info": {"life": {"holder": "HOLDER_KEEPER"}}}, "Nothing needs attention."),
    "keeper ended": ({"info": {"life": {"holder": "HOLDER_ENDED"}}}, "No keeper: The keeper has ended."),
    "keeper full": ({"info": {"life": {"holder": "HOLDER_FULL"}}}, "No keeper: The service manager may keep too few descriptors."),
    "latest": (
        {"channels": [{"name": "l", "namespace": "default", "mode": "CHANNEL_MODE_LATEST", "capacity": "1", "queued": "1"}]},
        "Nothing needs attention.",
    ),
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A page whose scripts a test calls with answers of its own."""
    folder = tmp_path_factory.mktemp("scripts")
    daemon = Daemon(folder / "daemon", *SHOWS_NAMES)
    browser = Browser(folder / "browser", 800, 600)
    show(browser, daemon)
    yield browser
    browser.close()
    assert daemon.terminate() == 0


@pytest.mark.parametrize("case", ALERTS)
def test_alerts(case: str, scripts: Browser) -> None:
    answers, text = ALERTS[case]
    lists = {kind: {"rows": answers.get(kind, []), "more": False} for kind in ("sessions", "namespaces", "channels")}
    given = json.dumps({**lists, "info": answers.get("info", {})})
    call = f"(broker, alerts) => {{ Object.assign(broker.seen, {given}); return alerts.alertsView().textContent; }}"
    said = scripts.evaluate(f"Promise.all([import('./broker.js'), import('./alerts.js')]).then(([b, a]) => ({call})(b, a))")
    assert said.startswith(f"Alerts{text}"), said


def test_a_graph_with_a_circle_has_layers(scripts: Browser) -> None:
    """A process that sends into a channel from which it receives stands before it."""
    make = "const nodes = ['in', 'a', 'b', 'out'].map(name => ({name, width: 10, height: 10})); const [i, a, b, o] = nodes;"
    call = f"{make} place({{nodes, links: [[i, a], [a, b], [b, a], [b, o], [i, o]]}}, false); return nodes.map(node => node.layer);"
    layers = scripts.evaluate(f"import('./graph.js').then(({{place}}) => {{ {call} }})")
    assert layers == [0, 1, 2, 3]


def channel_between(name: str, sender: int | None, receiver: int | None, queued: int) -> dict[str, Any]:
    """A queue with room for two; the ends are the sessions' only ones."""
    ends = [{"sends": True, "session": str(sender), "client": f"p{sender}"}] if sender else []
    ends += [{"session": str(receiver), "client": f"p{receiver}", "waiting": str(queued)}] if receiver else []
    return {"name": name, "namespace": "default", "capacity": "2", "queued": str(queued), "ends": ends, "receivers": str(len(ends))}


STANDING: dict[str, tuple[list[dict[str, Any]], list[str], list[str]]] = {
    "the last stage": ([channel_between("a", 1, 2, 2), channel_between("b", 2, 3, 2)], ["p3"], ["p2"]),
    "the sink is gone": ([channel_between("a", 1, 2, 2), channel_between("b", 2, None, 2)], [], ["p2"]),
    "two wait for each other": ([channel_between("a", 1, 2, 2), channel_between("b", 2, 1, 2)], ["p1", "p2"], []),
    "nothing waits": ([channel_between("a", 1, 2, 0)], [], []),
}


@pytest.mark.parametrize("case", STANDING)
def test_the_cause_of_a_standstill(case: str, scripts: Browser) -> None:
    channels, causes, held_back = STANDING[case]
    call = f"""(broker, channels, standing) => {{
        channels.forget();
        for (const at of [1000, 30000]) {{
            Object.assign(broker.seen, {{at, channels: {{rows: {json.dumps(channels)}, more: false}}}});
            channels.follow();
        }}
        const named = (all) => all.map(({{end}}) => end.client).sort();
        const all = standing.standing();
        return [named(all.filter(standing.isCause)), named(all.filter((each) => !standing.isCause(each)))];
    }}"""
    modules = ", ".join(f"import('./{name}.js')" for name in ("broker", "channels", "standing"))
    assert scripts.evaluate(f"Promise.all([{modules}]).then((all) => ({call})(...all))") == [causes, held_back]


def test_nothing_is_said_of_a_time_in_which_the_page_saw_nothing(scripts: Browser) -> None:
    """An hour after the last reading, one array has waited for a moment."""
    rows = json.dumps([channel_between("a", 1, 2, 1) | {"oldest_ms": "200"}])
    call = f"""(broker, channels, standing) => {{
        channels.forget();
        for (const at of [1000, 3601000]) {{
            Object.assign(broker.seen, {{at, channels: {{rows: {rows}, more: false}}}});
            channels.follow();
        }}
        return standing.standing().length;
    }}"""
    modules = ", ".join(f"import('./{name}.js')" for name in ("broker", "channels", "standing"))
    assert scripts.evaluate(f"Promise.all([{modules}]).then((all) => ({call})(...all))") == 0


def test_a_long_filter_finds_nothing_and_the_page_goes_on(
    daemon: Daemon, open_session: Callable[..., Session], browse: Callable[..., Browser]
) -> None:
    open_session(daemon).publish("one", bytes(10))
    browser = browse()
    show(browser, daemon)
    browser.until_text("one", "#names")
    typed = "ü" * 128
    browser.evaluate(f"(box => {{ box.value = '{typed}'; box.dispatchEvent(new Event('input')); }})(document.getElementById('filter'))")
    browser.until_text("no name begins with that", "#names")
    before = reads(browser)
    eventually("it is read twice more", lambda: reads(browser) >= before + 2)
    assert browser.evaluate("document.getElementById('silence').hidden")
