# SPDX-License-Identifier: Apache-2.0
"""Host arrays on their way into real packages' arrays on a GPU, beside the simulated driver's own count."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from counted import counted, refused
from real_packages import package

import arraybridge
from arraybridge import convert_memory
from arraybridge.conversion.memory import converted
from arraybridge.conversion.uploads import Uploads

CHUNK = 4 << 20  # bytes of the pinned memory through which a large array goes
COUNTERS = ("cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuStreamSynchronize")


def values(array: Any) -> np.ndarray:
    return package(arraybridge.detect_memory_type(array)).values(array)


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    def uploads_by_pinned_chunks(*frameworks: str) -> str:
        large = np.arange(5 * CHUNK + 3, dtype="u1")
        allocated = []
        for target in frameworks * 2:
            got, (chunks, copies, waits) = counted(functools.partial(broker.convert, large, target, device=0), COUNTERS)
            assert (values(got) == large).all()
            assert (copies, waits) == (6, 1), (target, copies, waits)
            allocated.append(chunks)
        assert allocated[0] in (0, 2), "two chunks, unless an earlier conversion has made them"
        assert allocated[2:] == [0, 0], "the chunks are kept"
        return "right"

    def uploads_of_a_tree(*frameworks: str) -> str:
        tree = {"layers": [np.full((10, number + 1), number, "f4") for number in range(50)], "last": (np.arange(CHUNK, dtype="u1"), 3)}
        for target in frameworks:
            way = functools.partial(broker.convert, tree, target, device="cuda:0", explain=True)
            (got, plan), (_, copies, waits) = counted(way, COUNTERS)
            assert [values(each).tolist() for each in got["layers"]] == [each.tolist() for each in tree["layers"]]
            assert (values(got["last"][0]) == tree["last"][0]).all()
            assert got["last"][1] == 3
            assert (plan.copies, plan.via, waits) == (51, "h2d", 1), (plan, waits)
            assert 51 <= copies <= 53, "a piece for each array, and one more where a chunk ends"
        return "right"

    def uploads_of_several_arrays() -> str:
        arrays = [np.full((3, number), number, "f8") for number in range(40)]

        def together() -> Any:
            uploads = Uploads()
            made = [converted(each, "numpy", "torch", 0, uploads=uploads) for each in arrays]
            uploads.make()
            return made

        got, (_, copies, waits) = counted(together, COUNTERS)
        assert all((values(one) == other).all() for one, other in zip(got, arrays, strict=True))
        assert (copies, waits) == (39, 1), (copies, waits)
        turned = np.arange(12.0).reshape(3, 4).T
        tensor = convert_memory(turned, "numpy", "torch", 0)
        assert tensor.is_contiguous()
        assert (values(tensor) == turned).all()
        assert (values(convert_memory(turned.astype(">f8"), "numpy", "cupy", 0)) == turned).all()
        empty = convert_memory(np.zeros((0, 3), "f4"), "numpy", "torch", 0)
        assert (empty.shape, empty.is_cuda) == ((0, 3), True)
        return "right"

    def uploads_put_a_strided_tree(name: str) -> str:
        host = np.arange(24, dtype="f4").reshape(6, 4)
        array = package("cupy").made(host, 0)
        share = broker.put({"compact": array, "strided": array[::2]}, name)
        assert share.device == (2, 0)
        got = broker.get(share, "cupy")
        assert (values(got["compact"]) == host).all()
        assert (values(got["strided"]) == host[::2]).all()
        return "right"

    def uploads_refused() -> str:
        """Of a driver that refuses every copy to a GPU."""
        large = np.arange(100, dtype="u1")
        for ask in (lambda: convert_memory(large, "numpy", "torch", 0), lambda: broker.convert([large], "torch", device=0)):
            try:
                ask()
            except arraybridge.MemoryConversionError as error:
                assert (error.method, error.source_type) == ("place", "numpy"), error
            else:
                raise AssertionError("it was not refused")
        refused(lambda: broker.bundle("refused", {"w": large}, device=0), arraybridge.BrokerError, "cuMemcpyHtoDAsync")
        refused(lambda: broker.open("refused"), arraybridge.ShareNotFound)
        return "right"

    made = (uploads_by_pinned_chunks, uploads_of_a_tree, uploads_of_several_arrays, uploads_put_a_strided_tree, uploads_refused)
    return {each.__name__: each for each in made}
