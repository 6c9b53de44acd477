# SPDX-License-Identifier: Apache-2.0
"""Puts a table of pandas, and starts three processes that read it with other libraries."""

import subprocess
import sys

import numpy as np
import pandas

from arraybridge import Broker

ROWS = 1_000_000


def duckdb_counts(broker: Broker) -> str:
    trips, plan = broker.get("trips", "duckdb", explain=True)
    rows = trips.aggregate("city, count(*) as trips, avg(minutes) as minutes", "city").order("city").fetchall()
    return f"{plan}\n{rows[0][0]}: {rows[0][1]} trips"


def polars_filters(broker: Broker) -> str:
    trips, plan = broker.get("trips", "polars", explain=True)
    return f"{plan}\n{trips.filter(trips['minutes'] > 59).height} trips of more than 59 minutes"


def torch_learns(broker: Broker) -> str:
    minutes, plan = broker.get("trips", "torch", column="minutes", explain=True)
    price = broker.get("trips", "torch", column="price")
    slope = (minutes * price).sum() / (minutes * minutes).sum()
    return f"{plan}\na minute costs {slope:.2f}"


READERS = {each.__name__: each for each in (duckdb_counts, polars_filters, torch_learns)}


def main() -> None:
    if len(sys.argv) > 1:
        print(f"{sys.argv[1]}: {READERS[sys.argv[1]](Broker())}")
        return
    random = np.random.default_rng(5)
    minutes = random.uniform(0, 60, ROWS)
    cities = pandas.Categorical.from_codes(random.integers(0, 3, ROWS), ["Bonn", "Köln", "Trier"])
    trips = pandas.DataFrame({"minutes": minutes, "price": 0.5 * minutes, "city": cities})
    broker = Broker()
    share = broker.put(trips, "trips", replace=True)
    print(f"put {len(trips):,} rows, {share.nbytes:,} bytes")
    for name in READERS:
        subprocess.run([sys.executable, __file__, name], check=True)
    broker.withdraw("trips")


main()
