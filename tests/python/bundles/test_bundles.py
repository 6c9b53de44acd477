# SPDX-License-Identifier: Apache-2.0
"""Bundles: one share of many arrays, written in place, published at once and read by name."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import eventually
from internals import raw_core

import arraybridge
from arraybridge import Broker, BundleSpec, InvalidRequest, ShareExists, ShareNotFound, UnsupportedArray, UnsupportedDtype, _core


def weights(count: int = 50) -> dict[str, Any]:
    return {f"layers.{i}.weight": np.full((i % 5, 3), i, "float32") for i in range(count)}


def test_arrays_are_what_was_put(broker: Broker) -> None:
    arrays = {**weights(), "scalar": np.array(7, "int64"), "flags": np.array([True, False]), "naïve·名": np.arange(6, dtype="uint8")[::2]}
    share = broker.bundle("m", arrays, fingerprint=b"one", metadata=b"more").fill().publish()
    assert share.name == "m"
    bundle = broker.open("m")
    assert (bundle.fingerprint, bundle.metadata, len(bundle)) == (b"one", b"more", len(arrays))
    assert list(bundle) == sorted(arrays, key=str.encode)
    for name, array in bundle.numpy().items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.dtype == arrays[name].dtype
        assert not array.flags.writeable or not array.size
        np.testing.assert_array_equal(np.from_dlpack(bundle[name]), arrays[name])
    assert "scalar" in bundle and "absent" not in bundle and 3 not in bundle
    with pytest.raises(KeyError):
        bundle["absent"]
    assert bundle.get("absent") is None


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
def test_every_framework_reads_it(broker: Broker, framework: str) -> None:
    pytest.importorskip(framework, exc_type=ImportError)
    broker.bundle("m", weights()).fill().publish()
    arrays = broker.open("m").arrays(framework)
    for name, array in weights().items():
        np.testing.assert_array_equal(np.asarray(arrays[name]), array)


def test_torchs_writes_reach_nobody(broker: Broker) -> None:
    torch = pytest.importorskip("torch")
    broker.bundle("m", {"w": np.zeros(1000)}).fill().publish()
    bundle = broker.open("m")
    one, other = bundle.torch()["w"], bundle.torch()["w"]
    one += 1
    assert torch.equal(other, torch.zeros(1000, dtype=torch.float64))
    assert not bundle.numpy()["w"].any()
    shared = bundle.torch(access="shared")["w"]
    assert shared.data_ptr() == bundle.numpy()["w"].__array_interface__["data"][0]


def test_a_model_is_loaded_without_a_copy(broker: Broker) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 4))
    model[2].weight = torch.nn.Parameter(model[0].weight.detach().t().contiguous())
    kinds = {**dict.fromkeys(dict(model.named_parameters()), "parameter"), **dict.fromkeys(dict(model.named_buffers()), "buffer")}
    broker.bundle("net", model.state_dict(), kinds=kinds).fill().publish()
    bundle = broker.open("net")
    assert (bundle.kind("0.weight"), bundle.kind("1.running_mean")) == ("parameter", "buffer")
    with torch.device("meta"):
        read = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 4))
    read.load_state_dict(bundle.state_dict(access="shared"), assign=True)
    given = torch.randn(5, 4)
    assert torch.equal(read.eval()(given), model.eval()(given))
    assert read[0].weight.data_ptr() == bundle["0.weight"].address
    assert set(bundle.state_dict("1.")) == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    assert bundle.torch("9.") == {}


def test_tied_arrays_are_one(broker: Broker) -> None:
    torch = pytest.importorskip("torch")
    table = torch.randn(100, 8)
    share = broker.bundle("m", {"embedding": table, "head": table, "half": table[:50]}).fill().publish()
    assert share.nbytes < 2 * table.nbytes + 8192
    arrays = broker.open("m").torch()
    assert arrays["embedding"] is arrays["head"]
    assert torch.equal(arrays["half"], table[:50])


def test_arrays_of_one_address_and_other_values_are_not_tied(broker: Broker) -> None:
    torch = pytest.importorskip("torch")
    big = np.arange(4, dtype=">i4")
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    room = bytearray(range(64))
    apart = {step: np.ndarray((4,), "int32", room, 0, (step,)) for step in (5, 7)}
    arrays = {
        "big": big,
        "little": big.view("<i4"),
        "numbers": numbers,
        "conjugate": numbers.conj(),
        **{str(s): a for s, a in apart.items()},
    }
    broker.bundle("m", arrays).fill().publish()
    found = broker.open("m").numpy()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], np.asarray(array.resolve_conj() if name == "conjugate" else array))


def test_values_for_a_tied_name_are_those_of_its_array(broker: Broker) -> None:
    table = np.zeros(3)
    writer = broker.bundle("m", {"a": table, "b": table}).fill()
    writer.fill({"b": np.ones(3)})
    writer.fill({"a": table, "b": table})
    with pytest.raises(InvalidRequest, match="'b' is tied to 'a'"):
        writer.fill({"a": np.zeros(3), "b": np.ones(3)})
    with pytest.raises(InvalidRequest, match="'b' is tied to 'a'"):
        writer.fill({"a": np.zeros(3, ">f8"), "b": np.ones(3, ">f8")})
    writer.fill({"b": np.full(3, 7.0)}).publish()
    assert broker.open("m").numpy()["a"].tolist() == [7.0] * 3
    specs = {"w": BundleSpec((3,), "float64"), "t": BundleSpec((3,), "float64", tie="w"), "u": BundleSpec((3,), "float64", tie="w")}
    with pytest.raises(InvalidRequest, match="'u' is tied to 't'|'u' is tied to 'w'"):
        broker.bundle("n", specs).fill({"t": np.ones(3), "u": np.zeros(3)})
    broker.bundle("n", specs).fill({"t": np.ones(3)}).publish()
    assert broker.open("n").numpy()["w"].tolist() == [1.0] * 3


def test_names_that_no_array_can_have(broker: Broker) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        broker.bundle("m", {"\ud800": np.ones(3)})
    broker.bundle("m", {"a": np.ones(3)}).fill().publish()
    bundle = broker.open("m")
    assert "\ud800" not in bundle and bundle.get(5) is None  # type: ignore[call-overload]
    with pytest.raises(KeyError):
        bundle["\ud800"]


def test_it_is_written_in_place(broker: Broker) -> None:
    specs = {
        "w": BundleSpec((2, 3), "float32", "parameter"),
        "t": BundleSpec((2, 3), "float32", tie="w"),
        "b": BundleSpec((4,), "bfloat16"),
    }
    writer = broker.bundle("m", specs)
    assert len(writer) == 3
    writer["w"][...] = 5
    writer.array("b", "torch").fill_(2)
    with pytest.raises(ShareNotFound):
        broker.open("m")
    writer.publish()
    with pytest.raises(InvalidRequest, match="is published"):
        writer["w"]
    with pytest.raises(InvalidRequest, match="is published"):
        writer.publish()
    bundle = broker.open("m")
    assert bundle.numpy("t")["t"].tolist() == [[5.0] * 3] * 2
    assert bundle.torch("b")["b"].float().tolist() == [2.0] * 4


def test_the_progress_of_a_fill_is_told(broker: Broker) -> None:
    seen: list[tuple[int, int]] = []
    broker.bundle("m", weights()).fill(progress=lambda done, total: seen.append((done, total))).publish()
    total = sum(array.nbytes for array in weights().values())
    assert seen[0] == (0, total) and seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_generations(broker: Broker) -> None:
    broker.bundle("m", {"w": np.zeros(3)}).fill().publish()
    first = broker.open("m")
    with pytest.raises(ShareExists):
        broker.bundle("m", {"w": np.ones(3)}).fill().publish()
    broker.bundle("m", {"w": np.ones(3)}, replace=True).fill().publish()
    second = first.wait_newer(5)
    assert second.share.generation > first.share.generation
    assert first.numpy()["w"].tolist() == [0.0] * 3
    assert second.numpy()["w"].tolist() == [1.0] * 3
    for timeout in (0.05, 0):
        with pytest.raises(arraybridge.BrokerTimeout, match="newer than generation"):
            second.wait_newer(timeout)


def test_twenty_thousand_arrays_have_one_lease(broker: Broker) -> None:
    broker.bundle("m", {f"{i}": np.full(4, i, "float32") for i in range(20_000)}).fill().publish()
    leases = broker.stats()["leases"] + broker.stats()["hazard_slots"]
    bundle = broker.open("m")
    assert np.from_dlpack(bundle["19999"]).tolist() == [19999.0] * 4
    arrays = bundle.numpy()
    assert len(arrays) == 20_000 and arrays["123"][0] == 123
    assert broker.stats()["leases"] + broker.stats()["hazard_slots"] == leases + 1
    first = arrays["0"]
    del bundle, arrays
    assert first.tolist() == [0.0] * 4


def test_a_writer_that_dies_leaves_nothing(broker: Broker) -> None:
    program = """
        import os, sys
        from arraybridge import Broker, BundleSpec
        writer = Broker(sys.argv[1], start="never").bundle("m", {"w": BundleSpec((1 << 20,), "float64")})
        writer["w"][...] = 1
        os.kill(os.getpid(), 9)
    """
    before = broker.stats()["charged_bytes"]
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), broker.address], check=False)
    eventually("its memory is free", lambda: broker.stats()["charged_bytes"] <= before)
    with pytest.raises(ShareNotFound):
        broker.open("m")


@pytest.mark.parametrize(
    ("arrays", "error", "text"),
    [
        ({"a" * ((1 << 20) + 1): np.ones(3)}, InvalidRequest, "has 1048577 bytes; it may have 1048576"),
        ({3: np.ones(3)}, InvalidRequest, "must be a str"),
        ({"a": np.array(["2026-11-26"], "M8[D]")}, UnsupportedDtype, "DLPack's dtypes"),
        ({"a": object()}, UnsupportedArray, "'a'.*supports no array protocol"),
        ({"a": BundleSpec((3,), "float32", tie="b")}, InvalidRequest, "which the bundle lacks"),
        ({"a": BundleSpec((-3,), "float32")}, InvalidRequest, "'a'.*negative sizes"),
        ({"a": BundleSpec((3,), "float32", "weight")}, InvalidRequest, "kind must be one of"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_an_invalid_bundle_is_refused(broker: Broker, arrays: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        broker.bundle("m", arrays)
    assert not broker.list("m")


def test_a_fill_of_another_shape_is_refused(broker: Broker) -> None:
    writer = broker.bundle("m", {"w": BundleSpec((2, 3), "float32")})
    with pytest.raises(InvalidRequest, match="differs from the bundle's"):
        writer.fill({"w": np.ones((3, 2), "float32")})
    with pytest.raises(InvalidRequest, match="differs from the bundle's"):
        writer.fill({"w": np.ones((2, 3))})
    with pytest.raises(KeyError):
        writer.fill({"v": np.ones(3)})


def test_other_shares_are_no_bundles(broker: Broker) -> None:
    broker.put(np.ones(3), "array")
    broker.put({"arraybridge.manifest": np.zeros(100, "uint8"), "arraybridge.bytes": np.zeros(100, "uint8")}, "alike")
    for name in ("array", "alike"):
        with pytest.raises(InvalidRequest, match="is no bundle"):
            broker.open(name)
    broker.bundle("m", {}).publish()
    assert broker.open("m").numpy() == {}


HEADER = struct.Struct("<8sHHIQIIII24x")
ENTRY = struct.Struct("<QIIIIHBBBBH")  # offset, name, shape, tie, DLPack's type, dimensions, kind, slab
COUNT = 300_000


def manifest(entries: bytes, rest: bytes = b"") -> bytes:
    return HEADER.pack(b"ABMANIF1", 1, 0, ENTRY.size, len(entries) // ENTRY.size, 0, 0, 0, 0) + entries + rest


def one_name_for_all() -> bytes:
    entries = b"".join(ENTRY.pack(0, HEADER.size + COUNT * ENTRY.size, 4096, 0, each, 1, 0, 8, 0, 2, 0) for each in range(COUNT))
    return manifest(entries, b"n" * 4096)


def one_shape_for_all() -> bytes:
    """Of 64 dimensions and one element."""
    shape = HEADER.size + COUNT * ENTRY.size
    entries = b"".join(ENTRY.pack(0, shape + 512 + 6 * each, 6, shape, 0, 1, 0, 8, 64, 2, 0) for each in range(COUNT))
    return manifest(entries, struct.pack("<64q", *[1] * 64) + b"".join(b"%06d" % each for each in range(COUNT)))


def one_place_for_all() -> bytes:
    """A thousand arrays that are all of the slab."""
    shape = HEADER.size + 1000 * ENTRY.size
    entries = b"".join(ENTRY.pack(0, shape + 8000 + 3 * each, 3, shape + 8 * each, each, 1, 0, 8, 1, 2, 0) for each in range(1000))
    return manifest(entries, struct.pack("<q", 1 << 20) * 1000 + b"".join(b"%03d" % each for each in range(1000)))


def publish_spoilt(broker: Broker, name: str, spoilt: bytes) -> None:
    """As a client that checks nothing: the bytes become a manifest after they were published."""
    core = raw_core(broker)
    specs = [("uint8", (1, 8, 1), (size,)) for size in (len(spoilt), 1 << 20)]
    options = _core.PutOptions(structure=_core.BUNDLE_STRUCTURE)
    placement = core.empty(specs, name, options)
    room = np.from_dlpack(placement.views[0])
    room[:] = 0
    core.publish(placement, name, options)
    room[:] = np.frombuffer(spoilt, "uint8")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (one_name_for_all, "two arrays are named"),
        (one_shape_for_all, "names or shapes share bytes"),
        (one_place_for_all, "'000' and '001' share bytes and are not tied"),
    ],
)
def test_a_reader_pays_at_most_a_few_times_the_manifest(address: str, broker: Broker, make: Callable[[], bytes], why: str) -> None:
    publish_spoilt(broker, "hostile", make())
    broker.bundle("honest", {"a": np.ones(3)}).fill().publish()
    program = """if True:
        import re, sys
        from arraybridge import Broker, InvalidRequest

        def peak():
            return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10

        broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
        broker.open("honest").numpy(), broker.get("honest")
        before = peak()
        for read in (lambda: broker.open("hostile").numpy(), lambda: broker.get("hostile")):
            try:
                read()
            except InvalidRequest as error:
                print(error)
        print(peak() - before)
        """
    done = subprocess.run([sys.executable, "-c", program, address, broker.namespace], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *refusals, cost = done.stdout.splitlines()
    assert len(refusals) == 2 and all(why in each for each in refusals), (refusals, cost)
    assert int(cost) < 4 * max(len(make()), 1 << 20)


def test_a_manifest_that_is_no_index_is_not_published(broker: Broker) -> None:
    contents = {"arraybridge.manifest": np.frombuffer(one_place_for_all(), "uint8"), "arraybridge.bytes": np.zeros(1 << 20, "uint8")}
    channel = broker.channel("c").open("receiver")
    for publish in (lambda: broker.put(contents, "bad"), lambda: broker.put(contents, "bad", wait=False), lambda: channel.send(contents)):
        with pytest.raises(InvalidRequest, match="'000' and '001' share bytes and are not tied"):
            publish()
    assert broker.list() == []


def test_a_broken_entry_costs_one_array(broker: Broker) -> None:
    broker.bundle("good", {"a": np.ones(3), "b": np.ones(3)}).fill().publish()
    copy = {name: array.copy() for name, array in broker.get("good").items()}
    copy["arraybridge.manifest"][64 + 24 + 1] = 200  # the code of the type of `a`, after 64 bytes of header
    copy["arraybridge.manifest"][64 + 26] = 200
    broker.put(copy, "bad")
    bundle = broker.open("bad")
    with pytest.raises(InvalidRequest, match="malformed"):
        bundle["a"]
    with pytest.raises(InvalidRequest, match="malformed"):
        bundle.numpy()
    assert np.from_dlpack(bundle["b"]).tolist() == [1.0] * 3


def test_a_bundle_is_pickled_as_a_reference_of_its_generation(address: str, broker: Broker) -> None:
    broker.bundle("m", {"a": np.arange(3.0)}).fill().publish()
    pickled = pickle.dumps(broker.open("m"))
    assert len(pickled) < 1000
    broker.bundle("m", {"a": np.arange(5.0)}, replace=True).fill().publish()
    kept = pickle.loads(pickle.dumps(broker.open("m")))
    assert kept.numpy()["a"].tolist() == [0, 1, 2, 3, 4]
    program = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).numpy()['a'].tolist())"
    done = subprocess.run([sys.executable, "-c", program, pickle.dumps(kept).hex()], capture_output=True, text=True, check=True)
    assert done.stdout == "[0.0, 1.0, 2.0, 3.0, 4.0]\n"


def test_what_cannot_be_pickled_says_what_to_pass(broker: Broker) -> None:
    with broker.watch("publish") as watch, pytest.raises(TypeError, match=r"pass what it watches, and call Broker\.watch"):
        pickle.dumps(watch)
    with pytest.raises(TypeError, match=r"pass the Channel or its name, and call receiver\(\)"):
        pickle.dumps(broker.channel("c").receiver("numpy"))


def test_the_tool_shows_a_bundle_as_a_model(broker: Broker) -> None:
    broker.bundle("m", weights()).fill().publish()
    broker.put(np.zeros(3, "u1"), "plain")
    tool = Path(os.environ["ARRAYBRIDGE_DAEMON"]).parents[1] / "client/ctl/arraybridgectl"
    listed = subprocess.run([tool, "-H", broker.address, "-n", broker.namespace, "ls"], capture_output=True, text=True, check=True)
    header, *rows = listed.stdout.splitlines()
    at = header.index("ARRAYS")
    assert {row.split()[1]: row[at:].split()[0] for row in rows} == {"m": "model", "plain": "uint8[3]"}
