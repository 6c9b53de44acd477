# SPDX-License-Identifier: Apache-2.0
"""Models, notebooks and tables of other libraries over arrays in the broker."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from processes import ROOT, environment

import arraybridge
from arraybridge import Broker, InvalidRequest, ShareNotFound

torch = pytest.importorskip("torch", reason="torch is not installed")


class Net(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.head = torch.nn.Linear(width, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, codes: Any) -> Any:
        return self.head(self.norm(self.embedding(codes)))


CODES = torch.arange(10)


def on_meta(**options: Any) -> Net:
    with torch.device("meta"):
        return Net(**options)


# torch


def test_a_module_is_published_and_attached_without_a_copy(broker: Broker) -> None:
    from arraybridge.integrations.torch import attach, publish

    net = Net().eval()
    publish(net, "net", broker=broker, fingerprint=b"1")
    bundle = broker.open("net")
    assert bundle.kind("embedding.weight") == "parameter" and bundle.kind("norm.running_mean") == "buffer"
    served = attach(on_meta(), bundle, access="shared").eval()
    assert torch.equal(served(CODES), net(CODES))
    assert served.head.weight.data_ptr() == bundle["head.weight"].address == bundle["embedding.weight"].address
    assert not any(parameter.requires_grad for parameter in served.parameters())
    trained = attach(on_meta(), bundle)
    loss = trained(CODES).sum()
    loss.backward()
    torch.optim.SGD(trained.parameters(), 1.0).step()
    assert not torch.equal(trained.head.weight, net.head.weight)
    assert torch.equal(served(CODES), net(CODES)) and bundle.fingerprint == b"1"


@pytest.mark.parametrize("access", ["safe", "shared"])
def test_tied_parameters_of_a_module_stay_one(broker: Broker, access: Any) -> None:
    from arraybridge.integrations.torch import attach, publish

    net = Net()
    publish(net, "net", broker=broker)
    for made in (Net(), on_meta()):
        attach(made, broker.open("net"), access=access)
        assert made.head.weight is made.embedding.weight
        assert len(list(made.parameters())) == len(list(net.parameters()))
        assert made.head.weight.requires_grad == (access == "safe")


def test_a_module_is_attached_to_the_next_generation(broker: Broker) -> None:
    from arraybridge.integrations.torch import attach, publish

    net = Net().eval()
    publish(net, "net", broker=broker)
    served = attach(on_meta(), broker.open("net"), access="shared").eval()
    with torch.no_grad():
        net.embedding.weight.mul_(2)
    publish(net, "net", broker=broker, replace=True)
    assert not torch.equal(served(CODES), net(CODES))
    assert torch.equal(attach(served, broker.open("net"), access="shared")(CODES), net(CODES))


def test_a_module_that_differs_is_not_changed(broker: Broker) -> None:
    from arraybridge.integrations.torch import attach, publish

    publish(Net(), "net", broker=broker)
    bundle = broker.open("net")
    broker.bundle("less", {name: array for name, array in bundle.items() if name != "norm.bias"}).fill().publish()
    net = Net()
    before = net.head.weight.clone()
    for other, text in ((bundle, r"torch.float32\[16, 9\] in the module"), (broker.open("less"), "only the module has 'norm.bias'")):
        with pytest.raises(InvalidRequest, match=text):
            attach(Net(9) if other is bundle else net, other)
    with pytest.raises(InvalidRequest, match=r"torch.float64\[16, 8\] in the module"):
        attach(Net().double(), bundle)
    with pytest.raises(InvalidRequest, match="only the module has"):
        attach(net, bundle, prefix="other.")
    net.register_buffer("table", torch.empty(3, device="meta"), persistent=False)
    with pytest.raises(InvalidRequest, match="'table' has no values"):
        attach(net, bundle, access="shared")
    assert torch.equal(net.head.weight, before) and net.head.weight.requires_grad


def test_servers_follow_a_trainer() -> None:
    program = ROOT / "docs/examples/follow-trainer/follow_trainer.py"
    done = subprocess.run([sys.executable, program, "--versions", "4"], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok\n") and "then killed" in done.stdout


# transformers


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_of_transformers(broker: Broker, dtype: str, tied: bool) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from arraybridge.integrations.torch import publish
    from arraybridge.integrations.transformers import from_broker

    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
        tie_word_embeddings=tied,
    )  # fmt: skip
    made = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).state_dict()
    model = transformers.LlamaForCausalLM.from_pretrained(None, config=config, state_dict=made, dtype=getattr(torch, dtype)).eval()
    publish(model, "llama", broker=broker)
    bundle = broker.open("llama")
    served = from_broker("llama", transformers.AutoModelForCausalLM, config, broker=broker, access="shared").eval()
    codes = torch.arange(12)[None]
    assert torch.equal(served(codes).logits, model(codes).logits)
    for name, parameter in served.named_parameters():
        assert parameter.data_ptr() == bundle[name].address and not parameter.requires_grad
    trained = from_broker(bundle, transformers.LlamaForCausalLM, config).train()
    trained(codes, labels=codes).loss.backward()
    torch.optim.SGD(trained.parameters(), 1.0).step()
    assert torch.equal(served(codes).logits, model(codes).logits)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_tied_weights_of_a_file_are_attached_and_swapped(broker: Broker, tmp_path: Any, family: str) -> None:
    """save_pretrained writes a tied tensor under one of its names."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from arraybridge.integrations.torch import attach
    from arraybridge.integrations.transformers import from_broker

    if family == "gpt2":
        config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64, n_positions=16)
        cls = transformers.GPT2LMHeadModel
    else:
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}
        config = transformers.LlamaConfig(**sizes, tie_word_embeddings=True)
        cls = transformers.LlamaForCausalLM
    tokens = torch.arange(8)[None]
    first, second = cls(config).eval(), cls(config).eval()
    first.save_pretrained(tmp_path / "first")
    second.save_pretrained(tmp_path / "second")
    arraybridge.load(tmp_path / "first", "lm", broker=broker)
    served = from_broker("lm", cls, config, broker=broker, access="shared").eval()
    assert torch.equal(served(tokens).logits, first(tokens).logits)
    newer = arraybridge.load(tmp_path / "second", "lm", broker=broker)
    assert torch.equal(attach(served, newer, access="shared")(tokens).logits, second(tokens).logits)
    assert served.get_output_embeddings().weight is served.get_input_embeddings().weight
    with torch.device("meta" if family == "gpt2" else "cpu"):  # Llama has buffers that no file has
        made = cls(config)
    assert torch.equal(attach(made, newer).eval()(tokens).logits, second(tokens).logits)


def test_a_model_of_transformers_from_a_file(broker: Broker, tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from arraybridge.integrations.transformers import from_broker

    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100)
    model = transformers.BertModel(config).eval()
    model.save_pretrained(tmp_path / "bert", max_shard_size="20KB")
    bundle = arraybridge.load(tmp_path / "bert", broker=broker)
    assert len(list((tmp_path / "bert").glob("*.safetensors"))) > 1
    served = from_broker("bert", transformers.BertModel, config, broker=broker, access="shared").eval()
    codes = torch.arange(12)[None]
    assert torch.equal(served(codes).pooler_output, model(codes).pooler_output)
    assert served.embeddings.word_embeddings.weight.data_ptr() == bundle["embeddings.word_embeddings.weight"].address


def test_a_bundle_of_another_model(broker: Broker) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from arraybridge.integrations.torch import publish
    from arraybridge.integrations.transformers import from_broker

    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=100)
    publish(Net(), "net", broker=broker)
    with pytest.raises(InvalidRequest, match="lacks .* weights of BertModel"):
        from_broker("net", transformers.BertModel, config, broker=broker)
    with pytest.raises(ShareNotFound):
        from_broker("absent", transformers.BertModel, config, broker=broker)


# Notebooks


NOTEBOOK = """
%load_ext arraybridge
import numpy as np
frame = np.arange(12.0).reshape(3, 4)
%ab_keep frame
%ab_keep frame second 2.5
%ab_keep frame third never
%ab_keep frame fourth 1e30
%ab_list
%ab_keep absent
%ab_keep
%ab_get 1x
"""
RESTARTED = """
%load_ext arraybridge
%ab_get frame torch
print(type(frame).__name__, frame.sum().item())
%ab_get second
print(type(second).__name__, second.shape)
%ab_drop second
%ab_list
"""


def run_cells(address: str, namespace: str, cells: str) -> str:
    pytest.importorskip("IPython", reason="IPython is not installed")
    program = f"""
from IPython.core.interactiveshell import InteractiveShell
import arraybridge, functools
arraybridge.integrations.jupyter.Broker = functools.partial(arraybridge.Broker, namespace={namespace!r})
shell = InteractiveShell.instance(colors="nocolor")
for line in {cells.strip().splitlines()!r}:
    shell.run_cell(line)
"""
    begin = "import arraybridge.integrations.jupyter\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + program], capture_output=True, text=True, check=False, env=environment(ARRAYBRIDGE_ADDRESS=address)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_magics_of_a_notebook(address: str, broker: Broker) -> None:
    told = run_cells(address, broker.namespace, NOTEBOOK)
    assert re.search(
        r"frame: 256 bytes, generation \d+, kept for 7 days, until \d{4}-\d\d-\d\d \d\d:\d\d, also without this kernel", told
    ), told
    assert "kept for 2.5 hours, until " in told and told.count(" kept for ") == 2, told
    assert "frame " in told and "second" in told
    for text in (
        "there is no variable absent",
        "usage: %ab_keep VARIABLE [NAME [HOURS]]",
        "'never' is no number of hours",
        "'1e30' is no number of hours",
        "'1x' is no name of a variable",
    ):
        assert text in told, told
    assert "Traceback" not in told
    told = run_cells(address, broker.namespace, RESTARTED)
    assert "Tensor 66.0" in told and "ndarray (3, 4)" in told, told
    assert [listed.share.name for listed in broker.list()] == ["frame"]


# Arrow


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)
def test_arrow_reads_one_dimension_without_a_copy(broker: Broker, dtype: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    share = broker.put(np.arange(100).astype(dtype), "column")
    for held in (share, share.view()):
        array = pyarrow.array(held)
        assert str(array.type) == {"float16": "halffloat", "float32": "float", "float64": "double"}.get(dtype, dtype)
        assert array.to_pylist() == list(range(100)) and array.null_count == 0
    view = share.view()
    array = pyarrow.array(view)
    assert array.buffers()[1].address == view.address
    broker.withdraw("column")
    del share, view
    assert array.to_pylist() == list(range(100))
    array.validate(full=True)


def test_polars_reads_a_share(broker: Broker) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    share = broker.put(np.arange(100.0), "column")
    series = polars.Series("column", share)
    assert series.dtype == polars.Float64 and series.sum() == 4950.0


def test_arrow_refuses_what_it_cannot_describe(broker: Broker) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for array, text in (
        (np.zeros((2, 3)), "one dimension"),
        (np.zeros(3, bool), "bool"),
        (np.zeros(3, "complex64"), "complex64"),
        (np.array(3.0), "one dimension"),
        (np.array(["2026-11-26"], "M8[D]"), "datetime64"),
    ):
        with pytest.raises(BufferError, match=text):
            broker.put(array).view().__arrow_c_array__()
    view = broker.put(np.arange(3), "column").view()
    assert pyarrow.array(view, type=pyarrow.int64()).to_pylist() == [0, 1, 2]
    assert pyarrow.array(view).cast("int32").to_pylist() == [0, 1, 2]  # pyarrow 26 fails at array(view, type=) of another type
    with pytest.raises(TypeError, match="at most one"):
        view.__arrow_c_array__(None, None)
    for capsules in (view.__arrow_c_array__(), view.__arrow_c_device_array__(None, later="ignored")):
        del capsules  # nobody has read them
