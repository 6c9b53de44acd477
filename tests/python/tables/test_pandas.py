# SPDX-License-Identifier: Apache-2.0
"""Frames and series of pandas come back with their index, dtypes and names."""

import datetime

import numpy as np
import pytest

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pandas needs pyarrow for tables")

from arraybridge import InvalidRequest, UnsupportedDtype

DAYS = pandas.date_range("2026-01-01", periods=3, tz="Europe/Berlin")
INDEXES = {
    "range": pandas.RangeIndex(2, 8, 2, name="n"),
    "text": pandas.Index(["a", "b", "c"], name="key"),
    "days": DAYS,
    "several": pandas.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["one", "two"]),
}


def frame(index=None):
    return pandas.DataFrame(
        {
            "x": [1.0, np.nan, -0.0],
            "n": np.array([1, 2, 3], "i2"),
            "flag": [True, False, True],
            "text": ["a", None, "c"],
            "object": pandas.Series(["a", "b", "ü"], dtype=object),
            "kind": pandas.Categorical(["a", "b", "a"], categories=["b", "a", "c"], ordered=True),
            "nullable": pandas.array([1, None, 3], "Int64"),
            "bits": pandas.array([True, None, False], "boolean"),
            "at": DAYS,
            "naive": pandas.to_datetime(["2026-01-01", None, "2026-01-03"]),
            "delta": pandas.to_timedelta([1, 2, None], unit="s"),
            "arrow": pandas.array([1.5, None, 2.5], "double[pyarrow]"),
            "day": pandas.array([datetime.date(2026, 1, 1), None, None], "date32[pyarrow]"),
        }
    ).set_axis(index if index is not None else pandas.RangeIndex(3))


@pytest.mark.parametrize("index", INDEXES)
def test_a_frame_comes_back_the_same(broker, index):
    made = frame(INDEXES[index])
    broker.put(made, "frame")
    pandas.testing.assert_frame_equal(broker.get("frame", "pandas"), made, check_freq=False)


def test_names_of_columns_stay_or_are_refused(broker):
    made = pandas.DataFrame(np.ones((2, 2)), columns=[7, 9])
    broker.put(made, "frame")
    pandas.testing.assert_frame_equal(broker.get("frame", "pandas"), made)
    with pytest.raises(UnsupportedDtype, match=r"rename\(columns=str\)"):
        broker.put(pandas.DataFrame(np.ones((2, 2)), columns=["a", 9]))


def test_another_process_gets_the_frame(broker, client):
    broker.put(frame(INDEXES["days"]), "frame")
    code = """import sys, arraybridge
got = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start="never").get("frame", "pandas")
print(len(got), got.x.sum(), got.kind.cat.ordered, got.index.tz)"""
    assert client(code, broker.namespace) == "3 1.0 True Europe/Berlin\n"


@pytest.mark.parametrize("series", [
    pandas.Series([1.0, np.nan, 3.0], INDEXES["text"], name="x"), pandas.Series(["a", None, "c"]), pandas.Series([1, 2, 3], name=5),
    pandas.Series(pandas.Categorical(["a", "b", "a"]), name="kind"), pandas.Series([], dtype="f4", name="none"),
])  # fmt: skip
def test_a_series_comes_back_the_same(broker, series):
    broker.put(series, "series")
    pandas.testing.assert_series_equal(broker.get("series", "pandas"), series)


def test_the_columns_of_numbers_are_not_copied(broker):
    broker.put(pandas.DataFrame({"x": np.arange(1000.0), "n": np.arange(1000)}), "frame")
    got, plan = broker.get("frame", "pandas", explain=True)
    assert plan.zero_copy, plan
    with pytest.raises(ValueError, match="read-only"):
        got["x"].to_numpy()[0] = 1
    broker.put(pandas.DataFrame({"x": np.arange(1000.0), "text": pandas.Series(["a"] * 1000, dtype=object)}), "frame", replace=True)
    got, plan = broker.get("frame", "pandas", explain=True)
    assert plan.copies == 1 and "column 'text': pandas copies" in plan.reasons[0] and "'x'" not in plan.reasons[0]


def test_nan_is_no_null(broker):
    pytest.importorskip("torch")
    broker.put(pandas.DataFrame({"x": [1.0, np.nan]}), "frame")
    assert broker.get("frame", "torch", column="x").isnan().tolist() == [False, True]


def test_a_series_of_numbers_is_an_array_of_any_framework(broker):
    broker.put(pandas.Series([1.0, 2.0], ["a", "b"]), "series")
    assert broker.get("series").tolist() == [1.0, 2.0]


def test_a_table_of_another_library_has_types_of_arrow(broker):
    pa = pytest.importorskip("pyarrow")
    broker.put(pa.table({"x": [1, None], "text": ["a", None]}), "table")
    got, plan = broker.get("table", "pandas", explain=True)
    assert plan.zero_copy and got.dtypes.astype(str).tolist() == ["int64[pyarrow]", "string[pyarrow]"]


def test_a_private_copy_can_be_written(broker):
    broker.put(pandas.DataFrame({"x": [1.0, 2.0]}), "frame")
    got = broker.get("frame", "pandas", copy=True)
    got.loc[0, "x"] = 5.0
    assert broker.get("frame", "pandas").x.tolist() == [1.0, 2.0]


def test_what_arrow_lacks_names_the_column(broker):
    with pytest.raises(UnsupportedDtype, match="column mixed.*astype"):
        broker.put(pandas.DataFrame({"mixed": [1, "a", object()]}))
    with pytest.raises((UnsupportedDtype, InvalidRequest), match="[Dd]uplicate"):
        broker.put(pandas.DataFrame(np.ones((2, 2)), columns=["x", "x"]))
