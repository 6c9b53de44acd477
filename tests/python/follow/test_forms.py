# SPDX-License-Identifier: Apache-2.0
"""Forms of a model that follow, each with the new weights bit by bit, and forms that are refused, because they keep old ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import eventually

from arraybridge import Broker, InvalidRequest

torch = pytest.importorskip("torch", reason="torch is not installed")

from followers import LAYERS, ONES, following, network, numbered, on_meta, prepared, published, random

from arraybridge.integrations.torch import attach

FORMS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda net: net,
    "jit.trace": lambda net: torch.jit.trace(net, ONES),
    "jit.freeze": lambda net: torch.jit.freeze(torch.jit.trace(net, ONES)),
    "export": lambda net: torch.export.export(net, (ONES,)).module(),
    "autocast": lambda net: lambda given: torch.autocast("cpu", torch.bfloat16)(net)(given),
    "functional_call": lambda net: lambda given: torch.func.functional_call(net, dict(net.named_parameters()), (given,)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_the_model_follows(broker: Broker, form: str) -> None:
    published(broker, random(1))
    model = on_meta()
    with following(model, broker) as follower, torch.no_grad():
        served = FORMS[form](model)
        for seed in (1, 2, 3):
            if seed > 1:
                published(broker, random(seed))
                prepared(follower)
            with follower.reading():
                answer = served(ONES)
            assert torch.equal(answer, FORMS[form](random(seed))(ONES)), seed
        assert follower.stats().swaps == 2


def numbers_of(served: Callable[[Any], Any]) -> set[float]:
    return set(served(ONES).unique().tolist())


@pytest.fixture
def compiles() -> Any:
    """Compiled code of these tests alone."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


ORDERS = ["attach, compile", "compile, attach", "module.compile()", "fullgraph"]


@pytest.mark.parametrize(("order", "backend"), [(order, "eager") for order in ORDERS] + [("attach, compile", "inductor")])
def test_compiled_code_follows_at_its_calls(broker: Broker, compiles: None, order: str, backend: str) -> None:
    def compiled(net: Any) -> Any:
        return torch.compile(net, backend=backend, fullgraph=order == "fullgraph")

    if backend == "inductor":
        try:
            compiled(numbered(1))(ONES)
        except Exception as error:  # the compiler's own classes
            pytest.skip(f"inductor finds no compiler here: {type(error).__name__}")
    published(broker, numbered(2))
    model = on_meta()
    served = target = compiled(model) if order in ("compile, attach", "fullgraph") else model
    with following(target, broker) as follower, torch.no_grad():
        if order == "attach, compile":
            served = compiled(model)
        elif order == "module.compile()":
            model.compile(backend=backend)
        assert numbers_of(served) == {2.0**LAYERS}
        reference = random(5)
        published(broker, reference)
        prepared(follower)
        assert torch.equal(served(ONES), compiled(reference)(ONES))
        counts = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        for version in (2, 3, 2, 3, 2):
            published(broker, numbered(version))
            prepared(follower)
            assert numbers_of(served) == {float(version**LAYERS)}
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counts, "a swap compiles nothing again"
        assert follower.stats().swaps == 6


def test_compiled_code_is_not_torn_by_other_threads(broker: Broker, compiles: None) -> None:
    nets = [numbered(version) for version in (2, 3)]
    published(broker, nets[0])
    model = on_meta()
    with following(model, broker) as follower, torch.no_grad():
        served = torch.compile(model, backend="eager")
        served(ONES)
        over, seen = threading.Event(), [set[float]() for _ in range(3)]

        def serve(found: set[float]) -> None:
            with torch.no_grad():
                while not over.is_set():
                    found |= numbers_of(served)

        threads = [threading.Thread(target=serve, args=(found,)) for found in seen]
        for thread in threads:
            thread.start()
        for turn in range(60):
            share = published(broker, nets[turn % 2])
        eventually("the last one arrives", lambda: follower.generation == share.generation, follower.stats)
        over.set()
        for thread in threads:
            thread.join()
        assert set().union(*seen) == {2.0**LAYERS, 3.0**LAYERS} and follower.stats().swaps > 1


def test_a_module_of_other_frameworks_is_refused(broker: Broker) -> None:
    published(broker, numbered(1))
    for other in ({"w": np.ones(3)}, np.ones(3), lambda given: given):
        with pytest.raises(InvalidRequest, match=r"JAX and TensorFlow suppose that arrays do not change.*bundle.wait_newer"):
            attach(other, broker.open("net"), follow=True)
    jax = pytest.importorskip("jax", reason="jax is not installed")
    with pytest.raises(InvalidRequest, match=r"takes a torch.nn.Module, not jaxlib.*wait_newer"):
        attach(jax.numpy.ones(3), broker.open("net"), follow=True)


def test_a_traced_module_is_refused_before_anything_changes(broker: Broker) -> None:
    published(broker, numbered(1))
    model = numbered(7)
    with pytest.raises(InvalidRequest, match="attach the module that it was made of .*reading"):
        attach(torch.jit.trace(model, ONES), broker.open("net"), follow=True)
    assert (model(ONES) == 7**LAYERS).all()


def quantised(net: Any) -> Any:
    return torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear})


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_module_is_refused_also_when_it_became_one_later(broker: Broker) -> None:
    published(broker, numbered(1))
    with pytest.raises(InvalidRequest, match=r"'0' is Linear, whose weights are copies .*follower.on_swap"):
        attach(quantised(numbered(1)), broker.open("net"), follow=True)
    model = on_meta()
    with following(model, broker) as follower:
        torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, inplace=True)
        published(broker, numbered(2))
        eventually("it is refused", lambda: follower.stats().refused == 1, follower.stats)
        assert "quantised" in follower.stats().error


def test_frozen_weights_of_compiled_code_are_refused(broker: Broker) -> None:
    config = pytest.importorskip("torch._inductor.config")
    published(broker, numbered(1))
    with config.patch(freezing=True), pytest.raises(InvalidRequest, match="freezing is set, so compiled code keeps copies"):
        attach(on_meta(), broker.open("net"), follow=True)


def test_a_bundle_without_bytes_is_refused(broker: Broker) -> None:
    empty = torch.nn.Module()
    empty.none = torch.nn.Parameter(torch.empty(0))
    published(broker, empty)
    with pytest.raises(InvalidRequest, match="the bundle has no bytes"):
        attach(empty, broker.open("net"), follow=True)


def test_a_bundle_of_other_names_changes_nothing(broker: Broker) -> None:
    published(broker, numbered(1))
    model = network(layers=3)
    before = [parameter.data_ptr() for parameter in model.parameters()]
    with pytest.raises(InvalidRequest, match="differ in 6 names"):
        attach(model, broker.open("net"), follow=True)
    assert [parameter.data_ptr() for parameter in model.parameters()] == before
    assert all(parameter.requires_grad for parameter in model.parameters()) and not model._forward_pre_hooks
