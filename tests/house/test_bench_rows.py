# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmarks have the agreed form, with any further measurements."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import bench

KEYS = ["id", "work", "value", "unit", "floor", "ratio", "reach", "peer", "peer_value"]


def figures(**more: float) -> dict[str, dict[str, float]]:
    peer = {"peer_torch_file_descriptor_resend_1mib": {"value": 300.0}}
    return {"get_numpy": {"value": 5.0, "floor": 20.0, "touched": 9.0, **more}, **peer}


def test_a_row_has_the_agreed_keys_and_what_is_beside_lies_beside(tmp_path: Path) -> None:
    rows = [bench.row_of("get_numpy", figures(), figures(value=6.0)), bench.row_of("put_4kib", figures(), None)]
    file = tmp_path / "rows.json"
    bench.write(file, rows)
    written = json.loads(file.read_text())
    assert [list(row) for row in written] == [KEYS, KEYS]
    assert [written[0][key] for key in ("value", "floor", "ratio", "peer_value")] == [5.0, 20.0, 0.25, 300.0]
    assert written[1]["value"] is None
    more = json.loads((tmp_path / "rows.more.json").read_text())
    assert more["get_numpy"]["touched"] == 9.0
    assert more["get_numpy"]["two_cpus"] == {"value": 6.0, "floor": 20.0, "ratio": 0.3, "peer_value": 300.0}
    assert more["put_4kib"] == {"note": "not run with --quick"}


def test_one_row_for_each_id() -> None:
    agreed = ["put_64mib", "put_64mib_python", "put_64mib_first", "put_4kib", "acquire_4kib", "acquire_1mib", "acquire_64mib"]
    agreed += ["acquire_1gib", "acquire_first", "get_numpy", "get_torch", "get_jax", "get_tensorflow", "grpc_unary"]
    assert set(agreed) | {"share_bytes_1e3", "share_bytes_1e4", "share_bytes_1e5"} <= set(bench.ROWS)
