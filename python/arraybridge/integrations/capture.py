"""capturing: a block during which a CUDA graph is captured, so that nothing asks the GPU what a capture must not be asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arraybridge import autograph


@contextmanager
def capturing() -> Iterator[None]:
    """Around the capture of a CUDA graph: `with arraybridge.capturing(), torch.cuda.graph(graph): ...`

    GPU memory is given back once everything that was queued on its GPU has ended. Asking for that while a graph is being
    captured there would invalidate the capture (CUDA's rule for whatever waits for a whole context), and the driver tells
    of captures elsewhere only if the default stream would have to wait for them; those of PyTorch it does not. Inside the
    block nobody asks, in the whole process: what is dropped there is given back afterwards, and `Broker.flush` does not
    wait for it. Blocks may nest and overlap, in any threads.
    """
    from arraybridge import _core  # loads the extension

    scope = _core.CaptureScope()
    try:
        yield
    finally:
        del scope


autograph.mark_module(__name__)
