# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the parts of vLLM 0.33 that arraybridge.integrations.vllm uses: its base classes and registries.

PyPI has vLLM for CUDA only, with dependencies of several GB. `install()` leaves an installed vLLM alone.
"""

import contextlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar


class BaseModelLoader(ABC):
    def __init__(self, load_config: Any) -> None:
        self.load_config = load_config

    @abstractmethod
    def download_model(self, model_config: Any) -> None: ...

    @abstractmethod
    def load_weights(self, model: Any, model_config: Any) -> None: ...


FORMATS: dict[str, type[BaseModelLoader]] = {}


def register_model_loader(load_format: str) -> Any:
    def registered(kind: type[BaseModelLoader]) -> type[BaseModelLoader]:
        assert issubclass(kind, BaseModelLoader)
        FORMATS[load_format] = kind
        return kind

    return registered


@dataclass
class WeightTransferInitInfo(ABC):  # noqa: B024
    pass


@dataclass
class WeightTransferUpdateInfo(ABC):  # noqa: B024
    pass


@dataclass
class TrainerInitInfo:
    backend: ClassVar[str]
    rank: int = field(kw_only=True)

    @property
    def is_sender(self) -> bool:
        return self.rank == 0


@dataclass(frozen=True)
class ParamMeta:
    name: str
    dtype: Any
    shape: tuple[int, ...]


class ModuleSource:
    def __init__(self, module: Any) -> None:
        self.module = module
        self.metadata = [ParamMeta(name, each.dtype, tuple(each.shape)) for name, each in module.named_parameters()]

    def owned_names(self, rank: int) -> list[str]:
        return [each.name for each in self.metadata]

    def implements_iter_full(self) -> bool:
        return True

    def iter_full(self) -> Iterator[tuple[str, Any]]:
        return iter(self.module.named_parameters())


class WeightTransferEngine(ABC):
    init_info_cls: Any
    update_info_cls: Any

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        self.model, self.model_config = model, vllm_config.model_config

    def parse_init_info(self, told: dict[str, Any]) -> Any:
        return self.init_info_cls(**told)

    def update_weights(self, told: dict[str, Any]) -> None:
        self.receive_weights(self.update_info_cls(**told))

    @abstractmethod
    def init_transfer_engine(self, init_info: Any) -> None: ...

    @abstractmethod
    def start_weight_update(self) -> None: ...

    @abstractmethod
    def finish_weight_update(self) -> None: ...

    @abstractmethod
    def receive_weights(self, update_info: Any) -> None: ...

    @abstractmethod
    def shutdown(self) -> None: ...


class TrainerWeightTransferEngine(ABC):
    init_info_cls: Any

    def __init__(self, *, client: Any, source: Any = None, is_sender: bool = True, rank: int = 0) -> None:
        self.client, self.source, self.is_sender, self.rank = client, source, is_sender, rank

    @classmethod
    @abstractmethod
    def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any: ...

    @abstractmethod
    def send_weights(self) -> None: ...


class WeightTransferEngineFactory:
    _registry: dict[str, Any] = {}

    @classmethod
    def register_engine(cls, name: str, kind: Any) -> None:
        if name in cls._registry:
            raise ValueError(f"{name} is registered")
        cls._registry[name] = lambda: kind

    @classmethod
    def create_engine(cls, config: Any, vllm_config: Any, device: Any, model: Any) -> Any:
        return cls._registry[config.backend]()(config, vllm_config, device, model)


class WeightTransferTrainerFactory:
    _registry: dict[str, Any] = {}
    register_engine = classmethod(WeightTransferEngineFactory.register_engine.__func__)  # type: ignore[attr-defined]

    @classmethod
    def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any:
        return cls._registry[init_info.backend]().trainer_init(init_info, client=client, source=source)


def install() -> None:
    if "vllm" in sys.modules or importlib.util.find_spec("vllm") is not None:
        return
    everything = globals()
    modules = {
        "model_executor.model_loader": ["BaseModelLoader", "register_model_loader"],
        "distributed.weight_transfer.base": [
            "ModuleSource", "TrainerInitInfo", "TrainerWeightTransferEngine", "WeightTransferEngine", "WeightTransferInitInfo",
            "WeightTransferUpdateInfo",
        ],
        "distributed.weight_transfer.factory": ["WeightTransferEngineFactory", "WeightTransferTrainerFactory"],
        "model_executor.model_loader.reload": [],
        "model_executor.model_loader.mtp_validation": [],
        "config.load": [],
    }  # fmt: skip
    for path, names in modules.items():
        parts = ["vllm", *path.split(".")]
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            sys.modules.setdefault(name, ModuleType(name)).__path__ = []  # type: ignore[attr-defined]
        vars(sys.modules[f"vllm.{path}"]).update({name: everything[name] for name in names})
    loaders = vars(sys.modules["vllm.model_executor.model_loader"])
    loaders.update(get_model_loader=lambda config: FORMATS[config.load_format](config), _LOAD_FORMAT_TO_MODEL_LOADER=FORMATS)
    reload = vars(sys.modules["vllm.model_executor.model_loader.reload"])
    reload.update(record_metadata_for_reloading=lambda model: None)
    reload.update(initialize_layerwise_reload=lambda model: None, finalize_layerwise_reload=lambda model, config: None)
    vars(sys.modules["vllm.model_executor.model_loader.mtp_validation"]).update(disable_mtp_completeness_check=contextlib.nullcontext)
    vars(sys.modules["vllm.config.load"]).update(
        LoadConfig=lambda **options: SimpleNamespace(**{"model_loader_extra_config": {}, **options})
    )
