# SPDX-License-Identifier: Apache-2.0
"""Publishes a model's weights after each step of torch, and what JAX makes of them, without a copy."""

import time

import jax
import numpy as np
import torch

from arraybridge import Broker

STEPS, SIDE = 5, 1024


def took(work):
    """Microseconds, and the result."""
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1e6, result


with Broker(start="private") as broker:
    ordinary, _info = took(lambda: broker.put(torch.ones(SIDE, SIDE), "ordinary"))
    with broker.born("torch", "jax", reserve_bytes=256 << 20) as born:
        model = torch.nn.Linear(SIDE, SIDE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        times, seen = [], []
        for _ in range(STEPS):
            in_place, _info = took(lambda: broker.put(model.weight, "weight", replace=True))
            times.append(in_place)
            reader = broker.get("weight", "numpy")  # as another process would
            seen.append((reader, reader.copy()))
            model(torch.ones(4, SIDE)).square().mean().backward()
            optimizer.step()  # writes the weights beside those that were put
        spectrum = jax.jit(lambda weight: jax.numpy.abs(jax.numpy.fft.fft(weight)))(seen[0][0])
        broker.put(spectrum, "spectrum")
        total = torch.zeros(SIDE, SIDE)
        broker.put(total, "total", keep_writing=True)
        total += model.weight.detach()  # where it lies; the share stays as it was
    assert all(np.array_equal(reader, then) for reader, then in seen), "a share changed"
    assert not broker.get("total", "numpy").any(), "the writer of the total reached its readers"
    assert not np.array_equal(seen[0][0], seen[-1][0]), "the model did not learn"
    print(f"a put of 4 MiB took {ordinary:,.0f} us with a copy, {sorted(times)[STEPS // 2]:,.0f} us without one")
    for framework, (arrays, size) in born.by_framework.items():
        print(f"{framework}: {arrays} arrays, {size / 2**20:,.0f} MiB in broker memory")
    print(f"missed: {born.missed or 'none'}; skipped: {born.skipped or 'none'}; {STEPS} versions stayed as they were")
