# SPDX-License-Identifier: Apache-2.0
"""A description or buffers that another process chose: a reader gets an error about the column, or a table that is safe."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from arraybridge import BrokerError, InvalidRequest
from arraybridge.conversion import tree
from arraybridge.tables import incoming, leaves, nodes, table

HERE = Path(__file__).parent
COUNT = 400

READER = """import sys, faulthandler, arraybridge, pyarrow
VALUES = ("out of range", "precision", "whole number of days", "acceptable range")
faulthandler.enable()
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
good = refused = 0
for number in range(int(sys.argv[3])):
    try:
        table = broker.get(f"table {number}", "table")
        table.validate(full=True)
        got = table.to("pyarrow")
        good += 1
        got.validate(full=True)
        got.to_pylist()
    except arraybridge.BrokerError as error:
        refused += 1
    except (OverflowError, ValueError, TypeError) as error:  # of values: a date or a decimal that Python or Arrow does not have
        assert any(word in str(error) for word in VALUES), error
print(good, refused)"""


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_survives_what_another_process_put(broker, client, seed):
    program = (HERE / "hostile_program.py").read_text(encoding="utf-8")
    assert client(program, broker.namespace, str(seed), str(COUNT)) == "put\n"
    good, refused = map(int, client(READER, broker.namespace, str(COUNT)).split())
    assert good + refused == COUNT and good > COUNT // 20 and refused > COUNT // 5


def put_as(broker, monkeypatch, table, change):
    """Puts the table with its description and leaves changed."""
    body, buffers = incoming.taken_apart(table)
    arrays = [np.array(leaves.array_of(each)) for each in buffers]
    change(body[1], arrays)
    monkeypatch.setattr(incoming, "taken_apart", lambda _: (body, arrays))
    broker.put(table, "table", replace=True)


FORMAT, NAME, METADATA, FLAGS, LENGTH, NULLS, BUFFERS, CHILDREN, DICTIONARY = range(9)


def set_leaf(index, at, value):
    def change(node, arrays):
        arrays[index][at] = value

    return change


def set_column(field, value):
    def change(node, _):
        node[CHILDREN][0][field] = value

    return change


def set_both(field, value):
    def change(node, _):
        node[field] = node[CHILDREN][0][field] = value

    return change


TEXT = pa.table({"x": ["a", "bc"]})
NUMBERS = pa.table({"x": [1.0, 2.0, None]})
CATEGORIES = pa.table({"x": pa.array(["a", "b"]).dictionary_encode()})
VIEWS = pa.table({"x": pa.array(["a text that is longer than twelve bytes"], pa.string_view())})
LISTS = pa.table({"x": pa.array([[1], [2, 3]], pa.list_view(pa.int32()))})
RUNS = pa.table({"x": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, 2]))})
UNION = pa.table({"x": pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])])})
AT_ONCE = {
    "a type": (TEXT, set_column(FORMAT, "nonsense"), "column 'x': its type 'nonsense' is unknown"),
    "a length": (TEXT, set_both(LENGTH, 5), "its offsets have 3 elements, and its length needs 6"),
    "a length of numbers": (NUMBERS, set_both(LENGTH, 4), "its values have 3 elements, and its length needs 4"),
    "a last offset": (TEXT, set_leaf(0, 2, 100), "its offsets go from 0 to 100, and there are 3 elements"),
    "a first offset": (TEXT, set_leaf(0, 0, -1), "its offsets go from -1"),
    "nulls": (NUMBERS, set_column(NULLS, 4), "more nulls than elements"),
    "no validity": (NUMBERS, set_column(BUFFERS, [None, 1]), "it has nulls and no validity"),
    "a buffer": (NUMBERS, set_column(BUFFERS, [0, 7]), "it names an array that the share lacks"),
    "buffers": (NUMBERS, set_column(BUFFERS, [0]), "it has 1 buffers, not 2"),
    "a dtype": (TEXT, set_column(BUFFERS, [None, 1, 0]), "its bytes are no uint8"),
    "children": (TEXT, set_column(CHILDREN, [["n", "", "", 0, 0, 0, [], [], None]]), "it has 1 children, not 0"),
    "a shorter column": (TEXT, lambda node, _: node.__setitem__(LENGTH, 3), "'x' has 2 elements, not 3"),
    "an empty dictionary": (CATEGORIES, lambda node, _: node[CHILDREN][0][DICTIONARY].__setitem__(LENGTH, 0), "its dictionary is empty"),
    "run ends": (RUNS, set_leaf(0, 1, 2), "its runs end at 2, and it has 3 elements"),
    "metadata": (TEXT, set_column(METADATA, "/////w=="), "invalid number of entries"),
    "metadata beyond its end": (TEXT, set_column(METADATA, "AQAAAP8AAAA="), "reaches beyond its end"),
    "no base64": (TEXT, set_column(METADATA, "a"), "not base64"),
    "a name": (TEXT, set_column(NAME, "x\0y"), "is not text"),
    "a number": (TEXT, set_column(FLAGS, -1), "an invalid number"),
    "a field": (TEXT, lambda node, _: node[CHILDREN][0].pop(), "without its nine fields"),
}  # fmt: skip
IN_FULL = {
    "an offset": (pa.table({"x": ["a", "b", "c"]}), set_leaf(0, 1, 3), "its offsets decrease"),
    "an index": (CATEGORIES, set_leaf(0, 1, 2), "an index is not in its dictionary of 2 values"),
    "a negative index": (CATEGORIES, set_leaf(0, 1, -1), "an index is not in its dictionary"),
    "UTF-8": (TEXT, set_leaf(1, 0, 255), "its text is not UTF-8"),
    "half a character": (pa.table({"x": ["ü", ""]}), set_leaf(0, 1, 1), "a character is divided"),
    "a view's buffer": (VIEWS, set_leaf(0, 8, 1), "a view names bytes that are not there"),
    "a view's offset": (VIEWS, set_leaf(0, 12, 1), "a view reaches beyond its bytes"),
    "a view's length": (VIEWS, set_leaf(0, 3, 255), "a view has a negative length"),
    "a view's beginning": (VIEWS, set_leaf(0, 4, 65), "a view does not begin as its bytes do"),
    "a list": (LISTS, set_leaf(1, 1, 3), "a list reaches beyond the 3 elements"),
    "run ends": (RUNS, set_leaf(0, 0, 3), "its run ends do not increase"),
    "a type id": (UNION, set_leaf(1, 0, 1), "a type id names no child"),
    "a union's offset": (UNION, set_leaf(2, 0, 2), "an offset is not in"),
    "the number of nulls": (NUMBERS, set_column(NULLS, 2), "it has 1 nulls, and states 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_wrong_size_is_refused_at_once(broker, monkeypatch, name):
    table, change, message = AT_ONCE[name]
    put_as(broker, monkeypatch, table, change)
    with pytest.raises(InvalidRequest, match=message):
        broker.get("table", "pyarrow")


@pytest.mark.parametrize("name", IN_FULL)
def test_a_wrong_value_is_found_in_full(broker, monkeypatch, name):
    table, change, message = IN_FULL[name]
    put_as(broker, monkeypatch, table, change)
    found = broker.get("table", "table")
    found.validate()
    with pytest.raises(InvalidRequest, match=f"'x.*': {message}"):
        found.validate(full=True)


def test_a_description_that_is_none(broker, monkeypatch):
    column = ["n", "", "", 0, 1, 0, [], [], None]
    for body in (["chair", column], ["table", 5], ["table", [column]], ["table", ["+s", "", "", 0, 1, 0, [None], [5], None]]):
        monkeypatch.setattr(incoming, "taken_apart", lambda _, made=body: (made, [np.zeros(1)]))
        broker.put(TEXT, "table", replace=True)
        with pytest.raises(InvalidRequest, match="contains a table that"):
            broker.get("table", "pyarrow")


def test_the_deepest_description(broker, monkeypatch):
    node = ["n", "", "", 0, 1, 1, [], [], None]
    for _ in range(nodes.DEPTH_MAX + 1):
        node = ["+s", "", "", 0, 1, 0, [None], [node], None]
    monkeypatch.setattr(incoming, "taken_apart", lambda _: (["table", node], [np.zeros(1)]))
    broker.put(TEXT, "table")
    with pytest.raises(InvalidRequest, match=f"nested more than {nodes.DEPTH_MAX} deep"):
        broker.get("table", "pyarrow")


def test_a_deep_description_in_a_tree(broker):
    body = "[" * 900 + "]" * 900
    structure = f'{{"l":[{{"table":["table",{body},0,0]}}]}}'.encode()
    with pytest.raises(InvalidRequest, match="contains a table that|is not readable"):
        tree.unflatten(structure, [np.zeros(1)], assemble=lambda layout, parts: table.Table.of(layout, parts, "numpy", id))


def test_structures_of_any_json(broker):
    """The parser of descriptions answers any JSON with an error of its own, or a description."""
    random_ = random.Random(5)
    words = [0, -1, 2**63, 1.5, None, True, "u", "+s", "", [], {}, ["n", "", "", 0, 1, 0, [], [], None]]

    def some(depth):
        return random_.choice(words) if depth > 4 or random_.random() < 0.3 else [some(depth + 1) for _ in range(random_.choice((1, 4, 9)))]

    for _ in range(2000):
        body = some(0)
        description = nodes.Description(json.dumps(body).encode())
        try:
            table.Table.of(description, [], "numpy", id)
        except BrokerError as error:
            assert "contains a table that" in str(error) or "table is invalid" in str(error)
        else:
            assert body[1][:2] == ["n", ""], body
