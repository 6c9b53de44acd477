# SPDX-License-Identifier: Apache-2.0
"""vLLM's loader and weight transfer over bundles: with vLLM if it is installed, otherwise with a stand-in for its base classes."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import vllm as stand_in

import arraybridge
from arraybridge import Broker, InvalidRequest, ShareNotFound

torch = pytest.importorskip("torch", reason="torch is not installed")
formats = pytest.importorskip("safetensors.torch")
stand_in.install()

from arraybridge.integrations import vllm


@pytest.fixture(autouse=True)
def registered() -> None:
    vllm.register()
    vllm.register()


class Model(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """As the models of vLLM: it copies the weights of a checkpoint into its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2, dtype=torch.bfloat16)

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> set[str]:
        own = dict(self.named_parameters())  # during a reload on "meta", with loaders that vLLM has wrapped
        loaded = set()
        for name, weight in weights:
            getattr(own[name], "weight_loader", copied)(own[name], weight)
            loaded.add(name)
        return loaded


def copied(parameter: Any, weight: Any) -> None:
    parameter.data.copy_(weight)


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(weight, other.state_dict()[name]) for name, weight in one.state_dict().items())


def loader(**options: Any) -> Any:
    from vllm.config.load import LoadConfig  # type: ignore[import-not-found, unused-ignore]
    from vllm.model_executor.model_loader import get_model_loader  # type: ignore[import-not-found, unused-ignore]

    return get_model_loader(LoadConfig(load_format="arraybridge", model_loader_extra_config=options))


def config(model: object = "nowhere", quantization: str | None = None) -> Any:
    return SimpleNamespace(model=str(model), quantization=quantization)


def test_a_model_is_loaded_from_a_folder_once(broker: Broker, tmp_path: Path) -> None:
    model = Model()
    folder = tmp_path / "llama"
    folder.mkdir()
    formats.save_file(model.state_dict(), folder / "model.safetensors")
    where = {"address": broker.address, "namespace": broker.namespace}
    for _ in range(2):
        made = Model()
        using = loader(**where)
        using.download_model(config(folder))
        using.load_weights(made, config(folder))
        assert same(made, model)
    assert [listed.share.name for listed in broker.list()] == ["llama"]
    loader(device="cpu", **where).download_model(config(folder))
    with pytest.raises(arraybridge.DeviceUnavailable, match="cuda:77"):
        loader(device="cuda:77", **where).download_model(config(folder))


def test_a_model_is_loaded_from_a_bundle(broker: Broker) -> None:
    model, made = Model(), Model()
    broker.bundle("policy", model.state_dict()).fill().publish()
    where = {"address": broker.address, "namespace": broker.namespace}
    loader(name="policy", **where).load_weights(made, config())
    assert same(made, model)
    with pytest.raises(ShareNotFound):
        loader(name="absent", **where).download_model(config())
    with pytest.raises(InvalidRequest, match="download it first"):
        loader(**where).download_model(config("org/model"))
    with pytest.raises(InvalidRequest, match="has 'nmae'"):
        loader(nmae="policy")
    broker.bundle("part", {"one.weight": model.one.weight}).fill().publish()
    with pytest.raises(InvalidRequest, match="lacks 3 weights of the model: 'one.bias'"):
        loader(name="part", **where).load_weights(made, config())
    loader(name="part", **where).load_weights(made, config(quantization="fp8"))  # its names are others


class Client:
    """The control plane: carries JSON to the engines of two workers."""

    def __init__(self, engines: list[Any]) -> None:
        self.engines = engines
        self.rounds: list[Any] = []

    def init_weight_transfer_engine(self, told: dict[str, Any]) -> None:
        for engine in self.engines:
            engine.init_transfer_engine(engine.parse_init_info(json.loads(json.dumps(told))))

    def start_weight_update(self) -> None:
        for engine in self.engines:
            engine.start_weight_update()

    def update_weights(self, told: dict[str, Any]) -> None:
        self.rounds.append(json.loads(json.dumps(told)))
        for engine in self.engines:
            engine.update_weights(self.rounds[-1])

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        for engine in self.engines:
            engine.finish_weight_update()


def test_workers_get_the_weights_of_a_trainer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)  # vLLM calls it, and PyPI's torch wants a driver
    from vllm.distributed.weight_transfer.base import ModuleSource  # type: ignore[import-not-found, unused-ignore]
    from vllm.distributed.weight_transfer.factory import (  # type: ignore[import-not-found, unused-ignore]
        WeightTransferEngineFactory,
        WeightTransferTrainerFactory,
    )
    from vllm.model_executor.model_loader.reload import (  # type: ignore[import-not-found, unused-ignore]
        record_metadata_for_reloading,
    )

    policy, workers = Model(), [Model(), Model()]
    for worker in workers:
        record_metadata_for_reloading(worker)
    about = SimpleNamespace(parallel_config=None, model_config=config())
    create = WeightTransferEngineFactory.create_engine
    client = Client([create(SimpleNamespace(backend="arraybridge"), about, torch.device("cpu"), worker) for worker in workers])
    info = vllm.trainer_info("policy", rank=0, address=broker.address, namespace=broker.namespace)
    trainer = WeightTransferTrainerFactory.trainer_init(info, client=client, source=ModuleSource(policy))
    for _ in range(3):
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(1)
        trainer.send_weights()
        assert all(same(worker, policy) for worker in workers)
    generations = [each["generation"] for each in client.rounds]
    assert generations == sorted(set(generations)) and len(generations) == 3
    assert broker.open("policy").kind("one.weight") == "parameter" and len(broker.list()) == 1
    second = vllm.trainer_info("policy", rank=1, address=broker.address, namespace=broker.namespace)
    WeightTransferTrainerFactory.trainer_init(second, client=None, source=ModuleSource(policy)).send_weights()  # publishes nothing
    assert broker.open("policy").share.generation == generations[-1]
    for wrong, text in (([("one.weight", torch.ones(1))], "differs from its metadata"), ([], "did not yield 4 of its weights")):
        source = ModuleSource(policy)
        monkeypatch.setattr(source, "iter_full", lambda wrong=wrong: iter(wrong))
        sender = WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
        with pytest.raises(InvalidRequest, match=text):
            sender.send_weights()
    assert broker.open("policy").share.generation == generations[-1]
    elsewhere = vllm.trainer_info("policy", rank=0, address=broker.address, namespace=broker.namespace, device="cuda:77")
    with pytest.raises(arraybridge.DeviceUnavailable, match="cuda:77"):
        WeightTransferTrainerFactory.trainer_init(elsewhere, client=client, source=ModuleSource(policy)).send_weights()
    create(SimpleNamespace(backend="arraybridge"), about, torch.device("cpu"), Model()).shutdown()  # before any trainer came
    with pytest.raises(InvalidRequest, match="WeightSource"):
        WeightTransferTrainerFactory.trainer_init(info, client=client)
    for engine in [*client.engines, trainer]:
        engine.shutdown()


def test_vllm_finds_it_by_its_entry_point() -> None:
    (found,) = [each for each in importlib.metadata.entry_points(group="vllm.general_plugins") if each.name == "arraybridge"]
    assert found.load() is vllm.register
    assert arraybridge.__name__ in found.value
