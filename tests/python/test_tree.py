"""Trees keep their structure through bytes that another process wrote."""

import json

import pytest

from arraybridge import tree
from arraybridge.errors import InvalidRequest


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


class Named(dict):
    pass


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "without any array"),
        ({"a": {}}, "without any array"),
        (Named(a=Leaf()), "Named would come back as another class"),
        ({(1, 2): Leaf()}, "a key of a tree"),
        ({float("nan"): Leaf()}, "a key of a tree"),
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
    ],
)
def test_a_hostile_structure_is_a_named_error(hostile):
    with pytest.raises(InvalidRequest, match="structure"):
        tree.unflatten(hostile, [Leaf()])


def test_the_structure_is_json():
    structure, _ = tree.flatten({"a": [Leaf(), Leaf()]})
    assert json.loads(structure) == {"d": [["a", {"l": [0, 1]}]]}
