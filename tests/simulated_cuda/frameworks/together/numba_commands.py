# SPDX-License-Identifier: Apache-2.0
"""What share_program.py does with kernels of Numba that no call has waited for."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from cell_commands import COUNT, expected, right
from real_packages import calls, package

import arraybridge


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    numba, kept = package("numba"), []
    cuda = numba.cuda

    def stream_of(kind: str) -> Any:
        return {"default": cuda.default_stream, "thread": cuda.per_thread_default_stream}.get(kind, cuda.stream)()

    def written(start: str, kind: str) -> Any:
        """An array that a kernel on this stream writes when a call waits for it. Of "unnamed" the array does not say its stream."""
        stream = stream_of(kind)
        source = cuda.to_device(expected(start) - 1)
        array = cuda.device_array(COUNT, np.float32, stream=0 if kind == "unnamed" else stream)
        cuda.synchronize()
        done = calls("kernels_done")
        numba.add(array, source, 1, stream)
        assert calls("kernels_done") == done, "no call has waited"
        kept.append((array, source, stream))
        return array

    def numba_hand_on(name: str, start: str, kind: str, verb: str) -> str:
        array = written(start, kind)
        if verb == "put":
            broker.put(array, name)
        elif verb == "unwaited":
            broker.put(array, name, wait=False)
        elif verb == "send":
            broker.channel(name).send(array)
        else:
            asyncio.run(broker.channel(name).asend(array))
        broker.flush()
        return "ok"

    def numba_read(name: str, start: str, kind: str, verb: str) -> str:
        """A kernel on this stream reads what was handed on."""
        stream = stream_of(kind)
        array = broker.channel(name).receive("numba", timeout=60) if "send" in verb else broker.get(name, "numba")
        own = cuda.device_array(COUNT, np.float32, stream=stream)
        numba.add(own, array, 0, stream)
        values = own.copy_to_host(stream=stream)
        stream.synchronize()
        return right(values, start)

    def numba_convert(start: str, kind: str) -> str:
        """Readers of every package, on streams that wait for no other, come after the kernel."""
        seen = []
        for target in ("torch", "cupy"):
            own, array = package(target), written(start, kind)
            with own.side():
                done = calls("kernels_done")
                taken = broker.convert(array, target, copy=False)
                assert calls("kernels_done") == done, "nor has this"
                assert own.address(taken) == numba.address(array)
                seen.append(right(own.values(taken), start))
        seen.append(right(broker.convert(written(start, kind), "numpy"), start))
        private, plan = broker.convert(written(start, kind), "numba", copy=True, explain=True)
        seen.append(right(numba.values(private), start))
        return f"{' '.join(seen)} {plan.via}"

    return {each.__name__: each for each in (numba_hand_on, numba_read, numba_convert)}
