# SPDX-License-Identifier: Apache-2.0
"""A module follows a bundle: the same tensors, the next generation's bytes, between two calls."""

from __future__ import annotations

import copy
import gc
import io
import threading
import time
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
from harness import eventually

from arraybridge import Broker, InvalidRequest

torch = pytest.importorskip("torch", reason="torch is not installed")

from followers import LAYERS, ONES, addresses, following, network, numbered, on_meta, prepared, published, random

from arraybridge.integrations.torch import attach


def test_a_call_sees_the_newest_generation_under_the_same_tensors(broker: Broker) -> None:
    published(broker, random(1), metadata=b"1")
    model = on_meta()
    with following(model, broker) as follower:
        tensors, before = list(model.parameters()), addresses(model)
        assert torch.equal(model(ONES), random(1)(ONES)) and follower.bundle.metadata == b"1"
        for seed in range(2, 6):
            share = published(broker, random(seed), metadata=b"%d" % seed)
            prepared(follower)
            assert follower.generation < share.generation, "nothing swaps between two calls"
            assert torch.equal(model(ONES), random(seed)(ONES))
            assert follower.generation == share.generation and follower.bundle.metadata == b"%d" % seed
        assert all(one is other for one, other in zip(tensors, model.parameters(), strict=True)) and addresses(model) == before
        stats = follower.stats()
        assert (stats.swaps, stats.refused, stats.replaced, stats.error, stats.ready) == (4, 0, 0, "", False)
        assert 0 < stats.pause_us <= stats.pause_us_max and stats.prepare_ms > 0
        assert not any(parameter.requires_grad for parameter in model.parameters())


def test_arrays_that_were_handed_out_do_not_change(broker: Broker) -> None:
    published(broker, numbered(1))
    first = broker.open("net")
    held = first.numpy()["0.weight"], first.torch(access="shared")["0.weight"]
    model = on_meta()
    with following(model, broker) as follower:
        address = model[0].weight.data_ptr()
        assert address not in {held[0].ctypes.data, held[1].data_ptr()}
        del first
        for version in (2, 3, 4):
            published(broker, numbered(version))
            prepared(follower)
            assert follower.swap()
            assert (model[0].weight == version / 64).all()
        assert (held[0] == 1 / 64).all() and (held[1] == 1 / 64).all()


def test_what_a_follower_puts_is_a_copy(broker: Broker) -> None:
    """The window is no memory of a share: its bytes change."""
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower:
        broker.put(model[0].weight.detach(), "weight")
        published(broker, numbered(2))
        prepared(follower)
        assert follower.swap() and (broker.get("weight") == 1 / 64).all()


@pytest.mark.parametrize(("width", "layers"), [(1024, 5), (16, 3)], ids=["large", "small"])
def test_a_large_bundle_is_mapped_and_a_small_one_that_lies_otherwise_is_copied(broker: Broker, width: int, layers: int) -> None:
    """Bundles of 16 MiB and more have arenas of their own, and lie there alike, whatever their metadata is."""
    model = on_meta(lambda: network(width, layers))
    given = torch.ones(1, width)
    published(broker, numbered(1, width, layers))
    places = [broker.open("net")["0.weight"].address % 4096]
    with following(model, broker) as follower:
        for version in (2, 3, 4):
            broker.put(np.zeros(100 * version), f"moves what is carved next {version}")
            published(broker, numbered(version, width, layers), metadata=b"m" * 700 * version)
            places.append(broker.open("net")["0.weight"].address % 4096)
            prepared(follower)
            assert (model(given) == version**layers).all()
        apart = sum(place != places[0] for place in places)
        assert follower.stats().copied == apart and (apart > 0) == (width == 16)
        assert follower.stats().swaps == 3


def test_memory_of_a_generation_is_free_after_the_swap(broker: Broker) -> None:
    published(broker, numbered(1, 1024, 5))
    model = on_meta(lambda: network(1024, 5))
    others = broker.stats()["withdrawn_shares"]
    with following(model, broker) as follower:
        for version in (2, 3, 4):
            published(broker, numbered(version, 1024, 5))
            prepared(follower)
            assert follower.swap()
            eventually("one version", lambda: broker.stats()["withdrawn_shares"] <= others, broker.stats)
            assert (model[0].weight == version / 1024).all()


def test_a_newer_generation_takes_the_place_of_a_prepared_one(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower:
        for version in (2, 3, 4):
            published(broker, numbered(version))
            eventually("it is prepared", lambda: follower.stats().ready and follower.stats().skipped == version - 2, follower.stats)
        assert (model(ONES) == 4**LAYERS).all()
        assert (follower.stats().swaps, follower.stats().skipped) == (1, 2)


def test_a_block_reads_one_generation(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower:
        with follower.reading() as bundle:
            published(broker, numbered(2))
            prepared(follower)
            for _ in range(3):
                assert (model(ONES) == 1).all() and not follower.swap(timeout=0.0)
            assert (model[0](ONES) == 1).all() and bundle.share.generation == follower.generation
        with follower.reading() as bundle:
            assert (model[0](ONES) == 2).all() and bundle.share.generation == follower.generation


def test_by_hand_nothing_swaps_at_a_call(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker, follow="by hand") as follower:
        assert not follower.swap(timeout=0.0)
        published(broker, numbered(2))
        prepared(follower)
        assert (model(ONES) == 1).all()
        assert follower.swap() and (model(ONES) == 2**LAYERS).all() and not follower.swap(timeout=0.0)


def test_callbacks_make_derived_tensors_before_any_call(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower:
        made: list[Any] = []

        @follower.on_swap
        def fuse(bundle: Any) -> None:
            made.append((bundle.share.generation, float(model[0].weight[0, 0]), float(model(ONES)[0, 0])))

        share = published(broker, numbered(2))
        prepared(follower)
        model(ONES)
        assert made == [(share.generation, 2 / 64, 2.0**LAYERS)]
        follower.on_swap(lambda bundle: 1 / 0)
        published(broker, numbered(3))
        prepared(follower)
        with pytest.raises(ZeroDivisionError):
            model(ONES)
        assert (model(ONES) == 3**LAYERS).all() and follower.stats().swaps == 2


def test_an_error_of_a_call_does_not_keep_the_next_swap_out(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower:
        for version, error in ((2, RuntimeError), (3, KeyboardInterrupt)):
            handle = model[1].register_forward_hook(lambda *_, error=error: (_ for _ in ()).throw(error("in a layer")))
            with pytest.raises(error):
                model(ONES)
            handle.remove()
            published(broker, numbered(version))
            prepared(follower)
            assert (model(ONES) == version**LAYERS).all()
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 3))
        published(broker, numbered(4))
        prepared(follower)
        assert (model(ONES) == 4**LAYERS).all()


class Net(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Tied parameters, buffers of two kinds, a parameter without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight
        self.none = torch.nn.Parameter(torch.empty(0, 3))
        self.register_buffer("table", torch.arange(8.0), persistent=False)

    def forward(self, codes: Any) -> Any:
        return self.head(self.norm(self.embedding(codes)) + self.table)


def test_tied_parameters_and_buffers_follow(broker: Broker) -> None:
    codes = torch.arange(10)
    torch.manual_seed(1)
    nets = [Net().eval() for _ in range(3)]
    for net in nets:
        net.norm.running_mean.normal_()
        net.norm.num_batches_tracked.random_(100)
    published(broker, nets[0])
    model = Net().eval()
    with following(model, broker) as follower:
        for net in nets[1:]:
            published(broker, net)
            prepared(follower)
            assert torch.equal(model(codes), net(codes))
            assert all(torch.equal(tensor, net.state_dict()[name]) for name, tensor in model.state_dict().items())
            assert model.head.weight is model.embedding.weight
        assert follower.stats().replaced == 0


def test_a_generation_of_another_layout_gets_new_tensors(broker: Broker) -> None:
    """The untied head has bytes of its own."""
    codes = torch.arange(10)
    first, untied = Net().eval(), Net().eval()
    untied.head.weight = torch.nn.Parameter(torch.randn(16, 8))
    published(broker, first)
    model = Net().eval()
    model.head.weight = torch.nn.Parameter(torch.empty(16, 8))
    with following(model, broker) as follower:
        before = model.head.weight
        assert torch.equal(model(codes), first(codes))
        for net, replaced in ((untied, 1), (first, 2), (Net().eval(), 2)):
            published(broker, net)
            prepared(follower)
            assert torch.equal(model(codes), net(codes))
            assert follower.stats().replaced == replaced
        assert model.head.weight is not before


def test_a_generation_that_the_module_cannot_take_is_refused_and_the_next_one_taken(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        published(broker, network(32))
        eventually("it is refused", lambda: follower.stats().refused == 1, follower.stats)
        assert "torch.float32[64] in the module and torch.float32[32] in the bundle" in follower.stats().error
        assert (model(ONES) == 1).all()
        broker.put(np.zeros(3), "net", replace=True)
        eventually("an array is no bundle", lambda: "no bundle" in follower.stats().error, follower.stats)
        published(broker, numbered(2))
        prepared(follower)
        assert (model(ONES) == 2**LAYERS).all()
    assert any("the module keeps generation" in str(each.message) for each in told)


def test_a_module_whose_tensors_were_replaced_is_not_half_swapped(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        model[3].weight = torch.nn.Parameter(model[3].weight.clone())
        published(broker, numbered(2))
        eventually("it is refused", lambda: follower.stats().refused == 1, follower.stats)
        assert "'3.weight' was replaced" in follower.stats().error and "attach the module again" in follower.stats().error
        assert (model(ONES) == 1).all() and follower.stats().swaps == 0


def test_a_withdrawn_name_is_awaited(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower:
        broker.withdraw("net")
        assert (model(ONES) == 1).all()
        published(broker, numbered(2))
        prepared(follower)
        assert (model(ONES) == 2**LAYERS).all()


def test_a_copy_of_the_module_does_not_follow(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    with following(model, broker) as follower:
        copied = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        published(broker, numbered(2))
        prepared(follower)
        assert (model(ONES) == 2**LAYERS).all()
        for other in (copied, loaded):
            assert (other(ONES) == 1).all()


def test_a_closed_follower_keeps_what_it_has(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    follower = attach(model, broker.open("net"), follow=True)
    assert repr(follower) == f"<Follower of 'net', generation {follower.generation}: follows>"
    published(broker, numbered(2))
    prepared(follower)
    follower.close()
    follower.close()
    assert not follower.swap() and (model(ONES) == 1).all() and follower.closed and "closed" in repr(follower)
    with follower.reading() as bundle:
        assert bundle.share.generation == follower.generation
    published(broker, numbered(3))
    assert (model(ONES) == 1).all()
    again = attach(model, broker.open("net"), follow=True)
    assert (model(ONES) == 3**LAYERS).all()
    again.close()


def test_a_follower_lives_as_long_as_its_module_and_ends_with_it(broker: Broker) -> None:
    published(broker, numbered(1))
    model = on_meta()
    kept = weakref.ref(attach(model, broker.open("net"), follow=True))
    gc.collect()
    published(broker, numbered(2))
    eventually("it is prepared", lambda: kept().stats().ready)
    assert (model(ONES) == 2**LAYERS).all()
    weight = model[0].weight
    del model
    eventually("it is gone", lambda: gc.collect() is not None and kept() is None)
    assert (weight == 2 / 64).all(), "a tensor keeps its bytes"


@pytest.mark.parametrize(("threads", "swaps"), [(1, 1000), (4, 1000)])
def test_no_pass_is_torn_under_load(broker: Broker, threads: int, swaps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of several threads while a publisher does not pause. `tests/bench/swaps.py load` makes 10,000 swaps by hand."""
    monkeypatch.setattr("arraybridge.integrations.follow.follower._PATIENCE_S", 0.0)
    nets = [numbered(version) for version in (2, 3)]
    published(broker, nets[0])
    model = on_meta()
    answers = {float(version**LAYERS) for version in (2, 3)}
    over, passes, torn = threading.Event(), [0] * threads, list[Any]()

    def serve(number: int) -> None:
        with torch.no_grad():
            while not over.is_set():
                answer = model(ONES)
                if set(answer.unique().tolist()) - answers or len(answer.unique()) != 1:
                    torn.append(answer)
                passes[number] += 1

    with following(model, broker) as follower:
        servers = [threading.Thread(target=serve, args=(number,)) for number in range(threads)]
        for server in servers:
            server.start()
        version = 0
        until = time.monotonic() + 10  # after which fewer swaps are enough
        while (made := follower.stats().swaps) < 20 or (made < swaps and time.monotonic() < until):
            version += 1
            published(broker, nets[version % 2])
        last = published(broker, nets[0]).generation
        eventually("the last one arrives", lambda: follower.generation == last, follower.stats)
        over.set()
        for server in servers:
            server.join()
        stats = follower.stats()
        print(f"{threads} threads: {stats.swaps} swaps of {version} generations, {sum(passes)} passes, pause {stats.pause_us_max:.0f} us")
        assert torn == [] and stats.swaps >= 20 and min(passes) > 0 and stats.refused == 0 and stats.error == ""


@pytest.mark.parametrize("follow", ["yes", 2, None])
def test_other_words_are_refused(broker: Broker, follow: Any) -> None:
    published(broker, numbered(1))
    with pytest.raises(InvalidRequest, match="follow must be True, False or 'by hand', not"):
        attach(on_meta(), broker.open("net"), follow=follow)
