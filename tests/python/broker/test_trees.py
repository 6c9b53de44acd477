# SPDX-License-Identifier: Apache-2.0
"""Trees keep their structure, plain values and classes through bytes that another process wrote."""

import collections
import dataclasses
import datetime
import enum
import json
import math
import os
import re
import sys
import types
import zoneinfo
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from arraybridge import Record
from arraybridge.conversion import plain, records, tree
from arraybridge.errors import InvalidRequest, UnsupportedArray


class Leaf:
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: {"x": a, "y": [b, (a,)]},
        lambda a, b: [a, b],
        lambda a, b: (a, (), {"": b}),
        lambda a, b: {1: a, "1": b, None: a, 2.5: b},
    ],
)
def test_there_and_back(make):
    first, second = Leaf(), Leaf()
    given = make(first, second)
    structure, leaves = tree.flatten(given)
    back = tree.unflatten(structure, leaves)
    assert back == given and type(back) is type(given)
    if isinstance(given, dict):
        assert list(back) == list(given)


def test_a_single_array_has_no_structure():
    leaf = Leaf()
    assert tree.flatten(leaf) == (b"", [leaf])
    assert tree.unflatten(b"", [leaf]) is leaf


def test_many_arrays_without_a_structure_are_a_list():
    assert tree.unflatten(b"", [1, 2]) == [1, 2]


def test_the_page_about_clients_shows_every_kind_of_node():
    page = (Path(__file__).parents[3] / "docs/guides/writing-a-client.md").read_text(encoding="utf-8")
    section = re.search(r"^## Structure$(.*?)^## ", page, re.DOTALL | re.MULTILINE)[1]
    nodes = re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE)
    assert nodes[0] == "0"
    for node in nodes:
        tree.unflatten(node.encode(), [1, 2, 3])
    kinds = {kind for node in nodes[1:] for kind in json.loads(node)} | {"time", "datetime", "timedelta"}  # named beside date
    assert kinds == {"d", "l", "t", "record", "enum", "sparse"} | plain.KINDS


class Named(dict):
    pass


class Text(str):
    pass


class Elsewhere(datetime.tzinfo):
    def utcoffset(self, when):
        return datetime.timedelta(0)


class Color(enum.Enum):
    RED = 1
    ALSO_RED = 1  # noqa: PIE796
    PAIR = ("a", 2.5)


class Way(str, enum.Enum):
    UP = "up"


class Strict(enum.IntFlag, boundary=enum.KEEP):
    A = 1
    B = 2


class Peculiar(enum.Enum):
    FUNCTION = enum.member(len)


@dataclasses.dataclass
class Frame:
    image: object
    name: str = ""
    color: Color = Color.RED
    made: int = dataclasses.field(default=0, init=False)

    def __post_init__(self):
        self.made += 1


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    image: object
    count: int = 0


@dataclasses.dataclass
class Special:
    __array_interface__: object


@dataclasses.dataclass
class Lacking:
    later: object = dataclasses.field(init=False)


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Named(a=Leaf()), "Named would be read as another class"),
        ({(1, 2): Leaf()}, "a key of a tree"),
        ({float("nan"): Leaf()}, "a key of a tree"),
        ([collections.Counter(), Leaf()], r"^\[0\]: Counter would be read as another class"),
        ({"a": [Leaf(), Text("x")]}, r"^\['a'\]\[1\]: a value of Text would be read as another class"),
        ([Leaf(), 1 << plain.INT_BITS_MAX], r"^\[1\]: an int of 4097 bits"),
        ([Leaf(), "\ud83d\ude00"], r"^\[1\]: the text .* would be read as one character"),
        ({"\ud83d\ude00": Leaf()}, "would be read as one character"),
        ([Leaf(), Peculiar.FUNCTION], r"^\[1\]: the value of Peculiar.FUNCTION is not a plain value"),
        ([Leaf(), Strict(1) | Strict(2) | Strict(64)], r"^\[1\]: .* has bits that no member of Strict has"),
        ([Leaf(), datetime.datetime(2026, 1, 1, tzinfo=Elsewhere())], r"^\[1\]: a tzinfo of Elsewhere"),
        ([Leaf(), datetime.time(1, tzinfo=zoneinfo.ZoneInfo("UTC"))], r"^\[1\]: a time of day has no offset in the zone UTC"),
        ([Leaf(), Special(1)], r"^\[1\]: the field __array_interface__ of Special"),
        ([Leaf(), Lacking()], r"^\[1\]: the field later of Lacking has no value"),
    ],
)
def test_what_cannot_come_back_is_refused(given, words):
    with pytest.raises(InvalidRequest, match=words):
        tree.flatten(given)


def nested(depth):
    given = Leaf()
    for _ in range(depth):
        given = [given]
    return given


def test_the_depth_limit_is_the_same_on_both_sides():
    structure, leaves = tree.flatten(nested(tree.DEPTH_MAX))
    tree.unflatten(structure, leaves)
    with pytest.raises(InvalidRequest, match="nested 64 deep"):
        tree.flatten(nested(tree.DEPTH_MAX + 1))
    with pytest.raises(InvalidRequest, match="more than 64 deep"):
        tree.unflatten(b'{"l":[' + structure + b"]}", leaves)


@pytest.mark.parametrize(
    "hostile",
    [
        b"\xff",
        b"{",
        b"[" * 100_000,
        b"[0]",
        b"1",
        b"-1",
        b"true",
        b"null",
        b'{"l":[0],"t":[]}',
        b'{"l":{"a":0}}',
        b'{"x":[0]}',
        b'{"d":[0]}',
        b'{"d":[["a"]]}',
        b'{"d":[[[1],0]]}',
        b'{"d":[["a",5]]}',
        b"1e999",
        b'{"v":[]}',
        b'{"v":{}}',
        b'{"v":NaN}',
        b'{"v":1e999}',
        b'{"f":"1.5"}',
        b'{"f":1}',
        b'{"c":[1]}',
        b'{"c":[1.5,"x"]}',
        b'{"c":7}',
        b'{"b":"!!"}',
        b'{"b":7}',
        b'{"timedelta":[1]}',
        b'{"timedelta":[1.5,0,0]}',
        b'{"timedelta":[999999999999,0,0]}',
        b'{"date":"2026-13-01"}',
        b'{"date":7}',
        b'{"time":["25:00",0,null,null,null]}',
        b'{"time":["12:00",7,null,null,null]}',
        b'{"datetime":["2026-01-01T00:00:00",0]}',
        b'{"datetime":["2026-01-01T00:00:00",0,99999999999999,"x",null]}',
        b'{"datetime":["2026-01-01T00:00:00",0,0,7,null]}',
        b'{"datetime":["2026-01-01T00:00:00",0,0,"x","../../etc/passwd"]}',
        b'{"datetime":["2026-01-01T00:00:00",0,0,"x","/etc/passwd"]}',
        b'{"datetime":["2026-01-01T00:00:00",0,0,"x",7]}',
        b'{"record":[0]}',
        b'{"record":["m:C",[["a"]]]}',
        b'{"record":["m:C",[["a b",0]]]}',
        b'{"record":["m:C",[[7,0]]]}',
        b'{"record":["m:C",[["__array_interface__",0]]]}',
        b'{"record":[7,[["a",0]]]}',
        b'{"record":{"a":0}}',
        b'{"enum":["m:C",["A"]]}',
        b'{"enum":["m:C",[7],{"v":1}]}',
        b'{"enum":["m:C",["A"],{"x":1}]}',
        b'{"l":[0,0]}',
        b'{"sparse":[{},[0]]}',
        b'{"sparse":[0,0]}',
        b'{"sparse":{"format":"csr"}}',
    ],
)
def test_a_hostile_structure_is_a_named_error(hostile):
    with pytest.raises(InvalidRequest, match="structure"):
        tree.unflatten(hostile, [Leaf()])


def test_the_structure_is_json():
    structure, _ = tree.flatten({"a": [Leaf(), Leaf()]})
    assert json.loads(structure) == {"d": [["a", {"l": [0, 1]}]]}


EVERY_VALUE = [
    None, True, False, 0, -3, 1 << 4095, 2.5, -0.0, math.inf, -math.inf, 1j, complex(math.inf, -0.5), "", "text", "\u00e4\U0001f600",
    "half \udcff", b"", bytes(range(256)), Color.RED, Color.PAIR, Way.UP, Strict.A, Strict.A | Strict.B, Strict(0),
    datetime.date(2026, 2, 28), datetime.time(1, 2, 3, 4), datetime.time(1, tzinfo=datetime.UTC), datetime.timedelta(-1, 5, 7),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=-3.5), "here")),
    datetime.datetime(2026, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("UTC"), fold=1),
]  # fmt: skip


def back(given, **wishes):
    structure, leaves = tree.flatten(given)
    return tree.unflatten(structure, leaves, **wishes)


@pytest.mark.parametrize("value", EVERY_VALUE, ids=repr)
def test_a_plain_value_comes_back_as_it_was(value):
    leaf = Leaf()
    for form in ([leaf, value], {"a": (value, leaf)}, Point(leaf, value), Frame(leaf, value)):
        got = back(form)
        assert type(got) is type(form) and repr(got) == repr(form)
    (same,) = [each for each in back([leaf, value]) if each is not leaf]
    assert type(same) is type(value) and same == value and repr(same) == repr(value)
    if isinstance(value, enum.Enum):
        assert same is value
    if isinstance(value, datetime.datetime) and value.tzinfo:
        assert (same.tzname(), same.utcoffset(), same.fold) == (value.tzname(), value.utcoffset(), value.fold)


def test_nan_is_one():
    assert math.isnan(back([Leaf(), math.nan])[1])


def test_an_alias_of_a_member_is_the_member():
    assert back([Leaf(), Color.ALSO_RED])[1] is Color.RED


def test_a_zone_that_is_not_here_is_its_offset_and_name(monkeypatch):
    when = datetime.datetime(2026, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("UTC"))
    structure, leaves = tree.flatten([Leaf(), when])

    def missing(key):
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr(plain, "ZoneInfo", missing)
    got = tree.unflatten(structure, leaves)[1]
    assert got == when and got.tzname() == "UTC" and type(got.tzinfo) is datetime.timezone


def test_a_dataclass_comes_back_without_a_word_of_its_own_code():
    leaf = Leaf()
    frame = Frame(leaf, "left", Color.PAIR)
    got = back(frame)
    assert type(got) is Frame and vars(got) == vars(frame) and got.made == 1, "__post_init__ has not run again"
    assert back([Slotted(leaf, 3)]) == [Slotted(leaf, 3)]
    assert back(Point(leaf, Point(1, 2))) == Point(leaf, Point(1, 2))


def imported(monkeypatch, **names):
    """A module that is imported, whose classes say where they are from."""
    module = types.ModuleType("shapes")
    for name, kind in names.items():
        kind.__module__, kind.__qualname__ = "shapes", name
        setattr(module, name, kind)
    monkeypatch.setitem(sys.modules, "shapes", module)
    return module


def test_classes_are_found_where_they_are_imported_or_passed(monkeypatch):
    other = dataclasses.make_dataclass("Box", ["image", "side"])
    imported(monkeypatch, Box=other)
    structure, leaves = tree.flatten([other(Leaf(), 3), Color.RED])
    assert type(tree.unflatten(structure, leaves)[0]) is other
    assert type(tree.unflatten(structure, leaves, types=(other,))[0]) is other
    record, value = tree.unflatten(structure, leaves, types=())
    assert type(record) is Record and record.type_name == "shapes:Box" and record["side"] == 3 and value == 1
    assert "shapes:Box" in repr(record)
    # A Record goes on as what it was.
    assert type(back([record])[0]) is other
    monkeypatch.delitem(sys.modules, "shapes")
    assert type(tree.unflatten(structure, leaves)[0]) is Record
    assert "shapes" not in sys.modules
    # By its name in whatever module the caller's class is.
    other.__module__ = "elsewhere"
    assert type(tree.unflatten(structure, leaves, types=(other,))[0]) is other


@pytest.mark.parametrize(
    "name", ["antigravity:Box", "os.path:Box", "this:X", "json:loads", "os:environ", "json:decoder.JSONDecoder", ":", "json:"]
)
def test_a_share_has_nothing_imported_and_nothing_called(name):
    before = set(sys.modules)
    structure = json.dumps({"record": [name, [["a", 0], ["b", {"v": 1}]]]}).encode()
    got = tree.unflatten(structure, [Leaf()])
    assert type(got) is Record and got.type_name == name and got["b"] == 1
    assert tree.unflatten(json.dumps({"l": [0, {"enum": [name, ["A"], {"v": 7}]}]}).encode(), [Leaf()])[1] == 7
    assert set(sys.modules) == before


def test_no_code_of_a_class_or_module_runs(monkeypatch):
    ran = []

    def told(*_, **__):
        ran.append(1)
        raise AssertionError

    class Loud(type):
        __call__ = __instancecheck__ = __subclasscheck__ = told

    @dataclasses.dataclass(init=False)
    class Armed(metaclass=Loud):
        image: object
        __new__ = __init__ = __post_init__ = __setattr__ = __getattr__ = __bool__ = __eq__ = __hash__ = told

    class Deleted:
        __del__ = told

    class Setting:
        def __set__(self, *_):
            told()

        def __get__(self, *_):
            return None

    @dataclasses.dataclass(init=False)
    class Guarded:
        image: object = Setting()

    deleted = dataclasses.make_dataclass("Deleted", ["image"], bases=(Deleted,))
    module = imported(monkeypatch, Armed=Armed, Deleted=deleted, Guarded=Guarded)
    module.__getattr__ = told

    def of(name):
        return tree.unflatten(json.dumps({"record": [f"shapes:{name}", [["image", 0]]]}).encode(), [1])

    ran.clear()  # of what Python itself asked while the classes were made
    armed = of("Armed")
    assert type(armed) is Armed and object.__getattribute__(armed, "image") == 1
    assert type(of("Deleted")) is Record and type(of("Guarded")) is Record and type(of("Missing")) is Record
    assert not ran


def test_another_version_of_a_class_is_named(monkeypatch):
    there = dataclasses.make_dataclass("Box", ["image", "side"])
    imported(monkeypatch, Box=there)
    structure, leaves = tree.flatten({"k": [there(Leaf(), 3)]})
    imported(monkeypatch, Box=dataclasses.make_dataclass("Box", ["image", "edge"]))
    said = r"the share's shapes:Box has the fields image, side, .* image, edge: pass types=\[\]"
    with pytest.raises(InvalidRequest, match=r"^\['k'\]\[0\]: " + said):
        tree.unflatten(structure, leaves)
    structure = json.dumps({"l": [0, {"enum": [records.name_of(Color), ["BLUE"], {"v": 9}]}]}).encode()
    with pytest.raises(InvalidRequest, match=r"^\[1\]: .* has the member BLUE, which this process's class lacks"):
        tree.unflatten(structure, [Leaf()])
    assert tree.unflatten(structure, [Leaf()], types=())[1] == 9


@pytest.mark.parametrize("wrong", [Frame, "Frame", [7], [int], [Frame, Frame], 3], ids=repr)
def test_types_are_classes_of_records_and_enums(wrong):
    with pytest.raises(InvalidRequest, match="types"):
        records.checked(wrong)
    assert records.checked(iter([Frame, Color, Point])) == (Frame, Color, Point)


def test_what_a_leaf_raises_names_its_path():
    def refuse(leaf):
        if leaf is wrong:
            raise UnsupportedArray("list", "share", "hand_over", "no")
        return leaf

    wrong = Leaf()
    given = {"a": [Leaf(), 1, Frame(Point(0, wrong))]}
    said = r"^\['a'\]\[2\]\.image\.y: Cannot convert from list to share"
    for walk in (
        lambda: tree.flatten(given, refuse),
        lambda: tree.converted(refuse, given, None),
        lambda: tree.unflatten(*tree.flatten(given), refuse),
    ):
        with pytest.raises(UnsupportedArray, match=said):
            walk()
    with pytest.raises(UnsupportedArray, match="^Cannot"):
        tree.flatten(wrong, refuse)


def test_a_long_or_foul_key_is_cut_and_escaped():
    structure = json.dumps({"d": [["\x1b[2J\u202e" + "k" * 1000, {"x": 0}]]}).encode()
    with pytest.raises(InvalidRequest) as caught:
        tree.unflatten(structure, [Leaf()])
    assert str(caught.value).startswith(r"['\x1b[2J\u202ekkk") and len(str(caught.value)) < 250 and str(caught.value).isprintable()


EXAMPLES = 20_000 if os.environ.get("ARRAYBRIDGE_LONG") else 500
KINDS = ["d", "l", "t", "record", "enum", "sparse", *sorted(plain.KINDS)]
LAYOUT = st.fixed_dictionaries(
    {"format": st.sampled_from(["csr", "coo", "x"]), "shape": st.lists(st.integers(-1, 3), max_size=3), "sorted": st.booleans(),
     "indices": st.sampled_from(["apart", "by_axis", 1]), "matrix": st.booleans()}
)  # fmt: skip
NODES = st.recursive(
    st.one_of(
        st.integers(-2, 4), st.none(), st.booleans(), st.text(max_size=9), st.floats(), LAYOUT,
        st.sampled_from(["2026-01-01T00:00:00", "12:00", "nan", "UTC", f"{__name__}:Frame", "json:JSONDecoder", "RED", "image"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(st.sampled_from(KINDS), st.one_of(inner, st.lists(inner, max_size=5))).map(lambda pair: {pair[0]: pair[1]}),
    ),
    max_leaves=20,
)  # fmt: skip
TREES = st.recursive(
    st.one_of(st.builds(Leaf), st.sampled_from(EVERY_VALUE), st.floats(allow_nan=False), st.integers()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.none()), inner, max_size=4),
        st.builds(Frame, inner, inner),
        st.builds(Point, inner, inner),
        st.builds(Slotted, inner, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(NODES)
def test_any_json_is_a_tree_or_a_named_error(node):
    try:
        tree.unflatten(json.dumps(node).encode(), [1, 2, 3])
    except InvalidRequest as refused:
        assert "share's" in str(refused)


@settings(max_examples=EXAMPLES, deadline=None)
@given(TREES)
def test_any_tree_comes_back(made):
    given = [Leaf(), made]
    got = back(given)
    assert got == given and repr(got) == repr(given)
    assert tree.converted(lambda leaf: leaf, given, None) == given
