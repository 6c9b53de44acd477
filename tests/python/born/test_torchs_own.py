# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples of its operators, in a block and outside: the results are the same, bit for bit."""

import importlib.util
import os
import time

import pytest
from processes import Client

PROGRAM = """
import random, sys, time, warnings
warnings.filterwarnings("ignore")
import torch
from torch.testing._internal import common_methods_invocations as samples
from torch.utils import _pytree
from arraybridge import Broker

samples.S, samples.M, samples.L = 33, 34, 35    # the sizes of samples, which are 5, 10 and 20: a matrix has 4 KiB
OTHERS = "empty", "resize", "_refs"             # what they return is not stated, or is Python
torch.set_num_threads(1)
broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
ends = time.monotonic() + float(sys.argv[3])
ops = [op for op in samples.op_db if torch.float32 in op.dtypes and not any(part in op.name for part in OTHERS)]
random.Random(7).shuffle(ops)


def is_small(sample):
    leaves = _pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(each.numel() for each in leaves if isinstance(each, torch.Tensor)) < 4 << 20


def run(op, sample):
    torch.manual_seed(0)
    given = sample.transform(lambda each: each.clone() if isinstance(each, torch.Tensor) else each)
    found = op(given.input, *given.args, **given.kwargs)
    return [each.detach() for each in _pytree.tree_leaves(found) if isinstance(each, torch.Tensor)]


def bits(tensor):
    plain = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


done = born = 0
different = []
for op in ops:
    if time.monotonic() > ends:
        break
    try:
        given = [sample for sample, _ in zip(op.sample_inputs("cpu", torch.float32), range(4)) if is_small(sample)]
        plain = [run(op, sample) for sample in given]
    except Exception:
        continue    # the samples of this operator are not for other sizes
    with broker.born("torch", min_bytes=4096) as block:
        inside = [run(op, sample) for sample in given]
        born += block.arrays
    for one, two in zip(plain, inside, strict=True):
        if not all(a.layout != torch.strided or torch.equal(bits(a), bits(b)) for a, b in zip(one, two, strict=True)):
            different.append(op.name)
    done += 1
    del plain, inside, given, one, two
print(done, "operators", born, "tensors born", *different)
"""


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
@pytest.mark.skipif(not importlib.util.find_spec("expecttest"), reason="expecttest, which PyTorch's own tests need, is not installed")
def test_operators_give_the_same_in_a_block(client: Client) -> None:
    seconds = 600 if os.environ.get("ARRAYBRIDGE_LONG") else 20
    words = client(PROGRAM, f"torchs-own-{time.time_ns()}", str(seconds)).split()
    assert int(words[0]) >= 20 and int(words[2]) >= 100, words
    assert words[5:] == [], "operators with other results in a block"
