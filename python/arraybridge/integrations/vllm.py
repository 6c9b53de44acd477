# SPDX-License-Identifier: Apache-2.0
"""vLLM: weights from the broker, read from files once a host, and weights of a trainer. Written against vLLM 0.33.

Installing arraybridge registers both with vLLM, by the entry point `vllm.general_plugins`:

    vllm serve ./llama --load-format arraybridge        # reads the folder as arraybridge.load does: once for all workers
    vllm serve ./llama --load-format arraybridge --model-loader-extra-config '{"name": "llama"}'    # a bundle that is there
    LLM(..., weight_transfer_config=WeightTransferConfig(backend="arraybridge"))

and in the trainer:

    engine = WeightTransferTrainerFactory.trainer_init(trainer_info("policy", rank=0), client=client, source=ModuleSource(model))
    engine.send_weights()        # the bundle "policy" has its next generation, and the workers load it
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import Bundle, BundleSpec
from arraybridge.errors import InvalidRequest
from arraybridge.files.loading import load

NAME: Final = "arraybridge"
_OPTIONS: Final = ("name", "address", "namespace", "wait", "device")


def register() -> None:
    """Registers the load format and the weight transfer backend "arraybridge"; again is no error.

    Raises:
        FrameworkNotAvailable: vLLM is not installed.
    """
    loaders: Any = ensure_module("vllm.model_executor.model_loader")
    known: Any = getattr(loaders, "_LOAD_FORMAT_TO_MODEL_LOADER", {})
    if NAME not in known:
        loaders.register_model_loader(NAME)(_loader())
    factories: Any = ensure_module("vllm.distributed.weight_transfer.factory")
    for factory, kind in (
        (factories.WeightTransferEngineFactory, _engine),
        (factories.WeightTransferTrainerFactory, _trainer_engine),
    ):
        if NAME not in factory._registry:
            factory.register_engine(NAME, kind())


def trainer_info(bundle: str, *, rank: int, address: str | None = None, namespace: str = "default", device: str | None = None) -> Any:
    """The TrainerInitInfo of this backend.

    Args:
        bundle: the name under which each round of weights is published.
        rank: of this process in the trainer; 0 publishes.
        address: of the broker, for trainer and workers; None: each finds it as `Broker()` does.
        device: where the weights are published, as in `Broker.bundle`; None: in host memory.
    """
    return _trainer_info()(bundle, address, namespace, device, rank=rank)


@functools.cache
def _loader() -> Any:
    base: Any = ensure_module("vllm.model_executor.model_loader").BaseModelLoader

    class ArraybridgeModelLoader(base):  # type: ignore[misc, unused-ignore]
        """`model_loader_extra_config`: name, address, namespace, wait (seconds until the bundle must exist), and device (as
        in `arraybridge.load`: where the folder's bundle is to lie).
        """

        def __init__(self, load_config: Any) -> None:
            super().__init__(load_config)
            self._options = dict(load_config.model_loader_extra_config or {})
            if wrong := sorted(self._options.keys() - set(_OPTIONS)):
                raise InvalidRequest(f"model_loader_extra_config of load format {NAME!r} has {wrong[0]!r}; it may have {list(_OPTIONS)}")

        def download_model(self, model_config: Any) -> None:
            self._opened(model_config)

        def load_weights(self, model: Any, model_config: Any) -> None:
            # The model copies each tensor into its own, fused or split as it needs them.
            loaded = model.load_weights(_weights(self._opened(model_config)))
            missing = set() if loaded is None or model_config.quantization else {name for name, _ in model.named_parameters()} - set(loaded)
            if missing:
                raise InvalidRequest(f"the bundle lacks {len(missing)} weights of the model: {min(missing)!r}")

        def _opened(self, model_config: Any) -> Bundle:
            broker = Broker(self._options.get("address"), namespace=self._options.get("namespace", "default"))
            if "name" in self._options:
                return broker.open(self._options["name"], wait=self._options.get("wait"))
            if not os.path.exists(model_config.model):
                raise InvalidRequest(f"{model_config.model!r} is no file or folder here: download it first, or name a bundle")
            return load(model_config.model, broker=broker, device=self._options.get("device"))

    return ArraybridgeModelLoader


def _weights(bundle: Bundle) -> Iterable[tuple[str, Any]]:
    return bundle.torch(access="shared").items()


@functools.cache
def _init_info() -> Any:
    base: Any = ensure_module("vllm.distributed.weight_transfer.base")

    @dataclasses.dataclass
    class ArraybridgeInitInfo(base.WeightTransferInitInfo):  # type: ignore[misc, unused-ignore]
        bundle: str
        address: str | None = None
        namespace: str = "default"

    return ArraybridgeInitInfo


@functools.cache
def _update_info() -> Any:
    base: Any = ensure_module("vllm.distributed.weight_transfer.base")

    @dataclasses.dataclass
    class ArraybridgeUpdateInfo(base.WeightTransferUpdateInfo):  # type: ignore[misc, unused-ignore]
        generation: int

    return ArraybridgeUpdateInfo


@functools.cache
def _trainer_info() -> Any:
    base: Any = ensure_module("vllm.distributed.weight_transfer.base")

    @dataclasses.dataclass
    class ArraybridgeTrainerInfo(base.TrainerInitInfo):  # type: ignore[misc, unused-ignore]
        backend: ClassVar[str] = NAME
        bundle: str = "model"
        address: str | None = None
        namespace: str = "default"
        device: str | None = None

    return ArraybridgeTrainerInfo


@functools.cache
def _engine() -> Any:
    base: Any = ensure_module("vllm.distributed.weight_transfer.base")

    class ArraybridgeWeightTransferEngine(base.WeightTransferEngine):  # type: ignore[misc, unused-ignore]
        """The side of a worker: a round of weights is a generation of a bundle, of which the worker is told the number."""

        init_info_cls = _init_info()
        update_info_cls = _update_info()
        _broker: Broker | None = None

        def init_transfer_engine(self, init_info: Any) -> None:
            self._broker = Broker(init_info.address, namespace=init_info.namespace)
            self._bundle = init_info.bundle

        def start_weight_update(self) -> None:
            ensure_module("vllm.model_executor.model_loader.reload").initialize_layerwise_reload(self.model)

        def finish_weight_update(self) -> None:
            ensure_module("vllm.model_executor.model_loader.reload").finalize_layerwise_reload(self.model, self.model_config)

        def receive_weights(self, update_info: Any) -> None:
            if self._broker is None:
                raise InvalidRequest("no trainer has initialised this weight transfer engine")
            bundle = self._broker.open(self._bundle, newer_than=update_info.generation - 1)
            incomplete: Any = ensure_module("vllm.model_executor.model_loader.mtp_validation").disable_mtp_completeness_check
            with incomplete():  # a round may have a part of the weights
                self.model.load_weights(_weights(bundle))

        def shutdown(self) -> None:
            if self._broker is not None:
                self._broker.close()

    return ArraybridgeWeightTransferEngine


@functools.cache
def _trainer_engine() -> Any:
    base: Any = ensure_module("vllm.distributed.weight_transfer.base")

    class ArraybridgeTrainerEngine(base.TrainerWeightTransferEngine):  # type: ignore[misc, unused-ignore]
        """The side of the trainer: rank 0 writes the full weights into a bundle's memory, publishes it, and tells the
        workers. Nothing is pickled, so that any client of vLLM's control plane carries it.
        """

        init_info_cls = _trainer_info()

        @classmethod
        def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any:
            if source is None or not source.implements_iter_full():
                raise InvalidRequest("weights are published from a WeightSource that implements iter_full")
            if len(source.owned_names(init_info.rank)) != len(source.metadata):
                raise InvalidRequest(f"rank {init_info.rank} does not own every parameter, and rank 0 publishes all of them")
            engine = cls(client=client, source=source, is_sender=init_info.is_sender, rank=init_info.rank)
            engine._info = init_info
            engine._broker = Broker(init_info.address, namespace=init_info.namespace)
            if engine.is_sender:
                endpoint = {"bundle": init_info.bundle, "address": init_info.address, "namespace": init_info.namespace}
                client.init_weight_transfer_engine(endpoint)
            return engine

        def send_weights(self) -> None:
            if not self.is_sender:
                for _ in self.source.iter_full():  # its collectives need every rank
                    pass
                return
            specs = {each.name: BundleSpec(each.shape, each.dtype, "parameter") for each in self.source.metadata}
            writer = self._broker.bundle(self._info.bundle, specs, replace=True, device=self._info.device)
            written = set()
            for name, tensor in self.source.iter_full():
                if name not in specs or tuple(tensor.shape) != tuple(specs[name].shape):
                    raise InvalidRequest(f"the source has {name!r} of shape {tuple(tensor.shape)}, which differs from its metadata")
                writer.array(name, "torch").copy_(tensor.detach())
                written.add(name)
            if missing := sorted(specs.keys() - written):
                raise InvalidRequest(f"the source did not yield {len(missing)} of its weights: {missing[0]!r}")
            share = writer.publish()
            self.client.start_weight_update()
            self.client.update_weights({"generation": share.generation})
            self.client.finish_weight_update()

        def shutdown(self) -> None:
            self._broker.close()

    return ArraybridgeTrainerEngine


autograph.mark_module(__name__)
