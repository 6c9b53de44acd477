# SPDX-License-Identifier: Apache-2.0
"""Tables of pyarrow, pandas, polars and DuckDB: what one process put, another gets, bit for bit."""

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import table_cases

import arraybridge
from arraybridge import FrameworkNotAvailable, InvalidRequest, Table, UnsupportedArray, ZeroCopyUnavailable

TYPES = sorted(table_cases.arrays())
# What pyarrow itself cannot do with a type, so that there is no such table.
CANNOT = {("run_end_encoded", "without chunks")}


def put_and_got(broker, value, library, **wishes):
    broker.put(value, "table", replace=True)
    return broker.get("table", library, **wishes)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_and_form_comes_back_the_same(broker, name):
    for form, column in table_cases.forms(table_cases.arrays()[name]).items():
        table = table_cases.table_of(column)
        got = put_and_got(broker, table, "pyarrow")
        got.validate(full=True)
        assert got.schema.equals(table.schema, check_metadata=True), form
        assert got.column(0).equals(table.column(0)) or same(got, table), form
        broker.get("table").validate(full=True)


def same(one, other):
    """Equality of what pyarrow does not compare: NaN, and unions."""
    return one.column(0).to_pylist() == other.column(0).to_pylist()


def test_another_process_reads_every_type(broker, client):
    for name, array in table_cases.arrays().items():
        broker.put(table_cases.table_of(pa.chunked_array([array])), name)
    out = client(
        """import sys, table_cases, arraybridge, pyarrow
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
for name, array in table_cases.arrays().items():
    got, plan = broker.get(name, "pyarrow", explain=True)
    expected = table_cases.table_of(pyarrow.chunked_array([array]))
    assert got.equals(expected, check_metadata=True), name
    assert plan.zero_copy, plan
    broker.get(name).validate(full=True)
print("all")""",
        broker.namespace,
    )
    assert out == "all\n"


def test_a_table_of_several_chunks_has_one(broker):
    table = table_cases.mixed()
    got = put_and_got(broker, table, "pyarrow")
    assert got.equals(table) and got.column("x").num_chunks == 1
    assert got.column("kind").chunk(0).dictionary.to_pylist() == ["kind 0", "kind 1", "kind 2"]


def test_dictionaries_of_chunks_are_united(broker):
    one, two = pa.array(["a", "b", None]).dictionary_encode(), pa.array(["c", "b", "a"]).dictionary_encode()
    got = put_and_got(broker, pa.table({"x": pa.chunked_array([one, two])}), "pyarrow").column("x")
    assert got.to_pylist() == ["a", "b", None, "c", "b", "a"] and got.chunk(0).dictionary.to_pylist() == ["a", "b", "c"]
    many = [pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(range(start, start + 100))) for start in (0, 100)]
    with pytest.raises(InvalidRequest, match="'x'.*200 values, more than int8 can number: cast its indices"):
        broker.put(pa.table({"x": pa.chunked_array(many)}))


@pytest.mark.parametrize("value", [
    pa.array([1, None]), pa.array(["a", None]), pa.chunked_array([[1, None], [3]]), pa.array([{"a": 1}]),
], ids=["nulls", "text", "chunks", "structs"])  # fmt: skip
def test_an_array_that_no_framework_has_is_a_column(broker, value):
    got = put_and_got(broker, value, "pyarrow")
    assert got.to_pylist() == value.to_pylist() and got.type == value.type
    assert broker.get("table", "table").kind == "column"


def test_numbers_without_nulls_stay_arrays(broker):
    assert put_and_got(broker, pa.array([1, 2]), "numpy").tolist() == [1, 2]
    assert put_and_got(broker, pa.chunked_array([[1.5], [2.5]]), "numpy").tolist() == [1.5, 2.5]


def test_a_record_batch_is_a_table(broker):
    batch = pa.record_batch({"x": [1, 2], "y": ["a", None]})
    assert put_and_got(broker, batch, "pyarrow").equals(pa.table(batch))


def test_columns_are_arrays_of_frameworks(broker):
    pytest.importorskip("torch")
    table = put_and_got(broker, table_cases.mixed(), "torch")
    assert isinstance(table, Table) and table.columns == ("x", "n", "name", "kind", "flag", "at") and len(table) == 2000
    assert table["x"].dtype.is_floating_point and table["x"][-1] == 999
    assert table["flag"].tolist()[:4] == [True, False, False, True]
    column, plan = broker.get("table", "torch", column="x", explain=True)
    assert plan.zero_copy and column.sum() == 999_000
    assert broker.get("table", column="at").dtype == np.dtype("datetime64[us]")
    assert broker.get("table", "torch", column="at").sum() == 999_000
    address = broker.get("table", "torch", access="shared", column="x").data_ptr()
    assert any(start <= address < end for start, end in broker.get("table", "torch", access="shared").spans)


def test_a_write_to_a_column_reaches_nothing_else(broker):
    pytest.importorskip("torch")
    column = put_and_got(broker, pa.table({"x": [1.0, 2.0]}), "torch", column="x")
    column += 1
    assert broker.get("table", "torch", column="x").tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        broker.get("table", column="x")[0] = 1


def test_columns_that_are_no_arrays_say_what_to_do(broker):
    broker.put(table_cases.mixed(), "table")
    with pytest.raises(UnsupportedArray, match="'n' has 286 nulls.*fill_null.*'pandas'"):
        broker.get("table", column="n")
    with pytest.raises(UnsupportedArray, match="'kind' is dictionary of utf8, which has no array"):
        broker.get("table", column="kind")
    with pytest.raises(InvalidRequest, match=r"no column named 'y': it has \['x', 'n'"):
        broker.get("table", column="y")
    with pytest.raises(InvalidRequest, match="2 columns named 'x'"):
        put_and_got(broker, pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]), "numpy", column="x")


def test_vectors_are_matrices(broker):
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype="f4")), 3)
    got = put_and_got(broker, pa.table({"v": rows}), "numpy", column="v")
    assert got.tolist() == [[0, 1, 2], [3, 4, 5]] and not got.flags.writeable


def test_a_table_in_a_tree_and_in_a_channel(broker):
    tree = {"table": table_cases.mixed(), "weights": np.ones(3), "more": [table_cases.mixed(2), 5]}
    got = put_and_got(broker, tree, "pyarrow")
    assert got["table"].equals(tree["table"]) and got["more"][0].equals(tree["more"][0]) and got["more"][1] == 5
    with broker.channel("tables") as sender, broker.channel("tables") as receiver:
        for _ in range(4):
            sender.send(tree["table"])
            assert receiver.receive("pyarrow", timeout=10).equals(tree["table"])


def test_a_table_of_many_columns_is_a_bundle(broker):
    wide = pa.table({f"column {index}": pa.array([index, None]) for index in range(1500)})
    assert put_and_got(broker, wide, "pyarrow").equals(wide)


def test_libraries_of_arrow_take_a_share(broker):
    table = table_cases.mixed()
    share = broker.put(table)
    assert pa.table(share).equals(table)
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(share)["x"].sum() == 999_000
    assert pa.chunked_array(broker.put(np.arange(3.0))).to_pylist() == [0, 1, 2]
    with pytest.raises(UnsupportedArray, match="a tree is not a table"):
        pa.table(broker.put({"a": np.ones(3), "b": np.ones(3)}))


def test_a_relay_does_not_copy_a_table(broker):
    share = broker.put(table_cases.mixed().combine_chunks(), "table")
    before = broker.stats()
    again = broker.put(broker.get("table"), "again")
    assert broker.get("again", "pyarrow").equals(broker.get("table", "pyarrow")) and again.nbytes <= share.nbytes
    assert broker.stats()["shares"] == before["shares"] + 1


def test_a_table_outlives_broker_and_name(address):
    with arraybridge.Broker(address, namespace="outlives", start="never") as broker:
        broker.put(table_cases.mixed(), "table")
        got = broker.get("table", "pyarrow").column("name")
        broker.withdraw("table")
    assert got.to_pylist()[1] == "name 1"


def test_limits_and_words_of_tables(broker):
    nested = pa.array([1, None])
    for _ in range(60):
        nested = pa.StructArray.from_arrays([nested], ["a"])
    with pytest.raises(InvalidRequest, match="nested 48 deep"):
        broker.put(pa.table({"x": nested}))
    broker.put(table_cases.mixed(), "table")
    with pytest.raises(arraybridge.DeviceUnavailable):
        broker.get("table", "pyarrow", device="cuda:0")
    with pytest.raises(InvalidRequest, match="cannot be written: leave out copy=True"):
        broker.get("table", "pyarrow", copy=True)
    with pytest.raises(arraybridge.InvalidMemoryType, match="'excel'"):
        broker.get("table").to("excel")
    assert repr(broker.get("table")).startswith("<Table of 2000 rows") and "<td>utf8</td>" in broker.get("table")._repr_html_()


def test_a_table_has_a_largest_number_of_chunks(broker, monkeypatch):
    from arraybridge.tables import structures

    monkeypatch.setattr(structures, "_BATCHES_MAX", 2)
    two, three = (pa.chunked_array([[1, None]] * count) for count in (2, 3))
    assert put_and_got(broker, pa.table({"x": two}), "pyarrow").num_rows == 4
    with pytest.raises(InvalidRequest, match="may have 2 chunks: join them first"):
        broker.put(pa.table({"x": three}))


def test_a_library_that_is_not_installed(broker, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    broker.put(table_cases.mixed(), "table")
    with pytest.raises(FrameworkNotAvailable, match="polars is not available.*install polars"):
        broker.get("table", "polars")


def test_a_forbidden_copy(broker):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, 2.0], "name": pandas.Series(["a", "b"], dtype=object)})
    broker.put(frame, "table")
    with pytest.raises(ZeroCopyUnavailable, match="column 'name': pandas copies"):
        broker.get("table", "pandas", require="zero-copy")


def test_multiprocessing_passes_tables_by_reference(broker):
    import multiprocessing

    import arraybridge.multiprocessing

    polars = pytest.importorskip("polars")
    table = table_cases.mixed(20_000)
    frame = polars.DataFrame({"x": range(20_000), "text": ["a text that is longer than twelve bytes"] * 20_000})
    arraybridge.multiprocessing.install(broker, threshold=1000)
    try:
        pickles = [multiprocessing.reduction.ForkingPickler.dumps(each) for each in (table, frame)]
        assert all(len(each) < 2000 for each in pickles)
        got = [multiprocessing.reduction.ForkingPickler.loads(each) for each in pickles]
        assert got[0].equals(table) and got[1].equals(frame)
        small = multiprocessing.reduction.ForkingPickler.dumps(table.slice(0, 1))
        assert multiprocessing.reduction.ForkingPickler.loads(small).equals(table.slice(0, 1))
    finally:
        arraybridge.multiprocessing.uninstall()
