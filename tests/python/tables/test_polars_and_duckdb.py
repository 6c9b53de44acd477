# SPDX-License-Identifier: Apache-2.0
"""Frames and series of polars, and relations of DuckDB, also without pyarrow."""

import datetime

import pytest

from arraybridge import UnsupportedArray

WITHOUT = """import sys
for name in ("pyarrow", "pandas"):
    sys.modules[name] = None
import arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
"""


def frame(polars):
    return polars.DataFrame(
        {
            "x": [1.0, None, 3.0],
            "text": ["a", None, "a text that is longer than twelve bytes"],
            "flag": [True, None, False],
            "kind": polars.Series(["a", "b", "a"], dtype=polars.Categorical),
            "enum": polars.Series(["a", "b", None], dtype=polars.Enum(["b", "a"])),
            "list": [[1, 2], [], None],
            "struct": [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 3, "b": "z"}],
            "array": polars.Series([[1, 2], [3, 4], None], dtype=polars.Array(polars.Int16, 2)),
            "at": polars.Series([datetime.datetime(2026, 1, 1)] * 3).dt.replace_time_zone("Europe/Berlin"),
            "day": [datetime.date(2026, 1, 1), None, None],
            "duration": [datetime.timedelta(1), None, None],
            "decimal": polars.Series(["1.25", None, "3.50"]).cast(polars.Decimal(10, 2)),
            "bytes": [b"a", None, b"b"],
        }
    )


@pytest.fixture
def polars():
    return pytest.importorskip("polars", reason="polars is not installed")


@pytest.fixture
def testing():
    return pytest.importorskip("polars.testing", reason="polars is not installed")


def test_a_frame_of_polars_comes_back_the_same(broker, polars, testing):
    made = frame(polars)
    for name, each in (("whole", made), ("chunks", polars.concat([made, made[1:]], rechunk=False)), ("empty", made[:0])):
        broker.put(each, name)
        got = broker.get(name, "polars")
        testing.assert_frame_equal(got, each, categorical_as_str=True)
        assert got.schema.names() == each.schema.names()
        broker.get(name).validate(full=True)


def test_a_series_of_polars_comes_back_the_same(broker, polars, testing):
    for name, series in enumerate(frame(polars)):
        broker.put(series, str(name))
        got = broker.get(str(name), "polars")
        assert isinstance(got, polars.Series)
        testing.assert_series_equal(got, series, check_names=False, categorical_as_str=True)


def test_the_text_of_polars_is_not_copied(broker, polars):
    broker.put(polars.DataFrame({"text": ["a text that is longer than twelve bytes"] * 3, "x": [1, 2, None]}), "frame")
    assert broker.get("frame", "polars", explain=True).plan.zero_copy


def test_a_lazy_frame_says_collect(broker, polars):
    with pytest.raises(UnsupportedArray, match=r"collect\(\)"):
        broker.put(frame(polars).lazy())


def test_polars_needs_no_pyarrow(broker, client, polars):
    broker.put(polars.DataFrame({"x": [1, 2], "text": ["a", None]}), "frame")
    code = """import polars
got = broker.get("frame", "polars")
broker.put(got.with_columns(y=got["x"] * 2), "more")
print(got["text"].to_list(), broker.get("more", column="y").tolist())"""
    assert client(WITHOUT + code, broker.namespace) == "['a', None] [2, 4]\n"


@pytest.fixture
def duckdb():
    return pytest.importorskip("duckdb", reason="duckdb is not installed")


def test_a_relation_of_duckdb_comes_back(broker, duckdb):
    with duckdb.connect() as connection:
        relation = connection.sql("select range as n, 'text ' || range as text, range / 3.0 as x from range(5000)")
        broker.put(relation, "relation")
        assert broker.get("relation", column="n").sum() == 12_497_500
        got = broker.get("relation", "duckdb")
        assert got.aggregate("sum(n), max(text), count(*)").fetchall() == [(12_497_500, "text 999", 5000)]
        assert got.fetchall() == relation.fetchall()


def test_a_relation_in_another_process(broker, client, duckdb):
    broker.put(duckdb.sql("select range as n, 'a' as text from range(100)"), "relation")
    code = """import sys, arraybridge, duckdb
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never")
relation = broker.get("relation", "duckdb")
print(duckdb.sql("select sum(n), count(text) from relation").fetchall())"""
    assert client(code, broker.namespace) == "[(4950, 100)]\n"
