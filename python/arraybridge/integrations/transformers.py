# SPDX-License-Identifier: Apache-2.0
"""Models of the transformers package whose weights are a bundle. Tested with transformers 5.24."""

from __future__ import annotations

from typing import Any

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.arguments import Access
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import Bundle
from arraybridge.errors import InvalidRequest
from arraybridge.integrations.torch import check_access


def from_broker(
    bundle: str | Bundle,
    cls: Any,
    config: Any,
    *,
    broker: Broker | None = None,
    wait: float | None = None,
    access: Access = "safe",
    **options: Any,
) -> Any:
    """A model whose weights are the bundle's, without a copy: `cls.from_pretrained` without files.

    Args:
        bundle: or its name, which `arraybridge.load` or `integrations.torch.publish` has published.
        cls: a class of models, such as `transformers.LlamaForCausalLM` or `transformers.AutoModel`.
        config: of the model: a PreTrainedConfig; nothing is downloaded.
        broker: for a name; None: `Broker()`.
        wait: for a name: seconds to wait until it exists.
        access: "safe": the model may be trained; its writes reach nobody. "shared": for inference; parameters require no
            grad, all processes read the same pages, and a write ends the process.
        options: of `from_pretrained`. dtype: another one than the bundle's makes copies.

    Raises:
        ShareNotFound, BrokerTimeout, BrokerUnavailable: as `Broker.open`.
        InvalidRequest: the bundle lacks weights of the model, or lies on a GPU and access is "safe".

    Example:
        >>> config = transformers.AutoConfig.from_pretrained("my-llama")    # its config.json
        >>> model = from_broker("llama", transformers.AutoModelForCausalLM, config, access="shared")
    """
    torch: Any = ensure_module("torch")
    ensure_module("transformers")
    found = (broker or Broker()).open(bundle, wait=wait) if isinstance(bundle, str) else bundle
    check_access(found, access)
    weights = found.torch(access=access)
    kinds = [tensor.dtype for tensor in weights.values() if tensor.is_floating_point()]
    options.setdefault("dtype", max(set(kinds), key=kinds.count) if kinds else torch.get_default_dtype())
    if hasattr(cls, "from_config"):  # one of the Auto classes, which ask a file for the class
        with torch.device("meta"):
            cls = type(cls.from_config(config))
    # It may remove names from the dict.
    model, loading_info = cls.from_pretrained(None, config=config, state_dict=dict(weights), output_loading_info=True, **options)
    if missing := sorted(loading_info["missing_keys"]):
        raise InvalidRequest(f"bundle {found.share.name!r} lacks {len(missing)} weights of {type(model).__name__}: {missing[0]!r}")
    if wrong := sorted(str(each) for each in loading_info["mismatched_keys"]):
        raise InvalidRequest(f"weights of bundle {found.share.name!r} do not fit {type(model).__name__}: {wrong[0]}")
    return model.requires_grad_(False) if access == "shared" else model


autograph.mark_module(__name__)
