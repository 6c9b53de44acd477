# SPDX-License-Identifier: Apache-2.0
"""capturing: a block during which a CUDA graph is captured, without queries to the GPU that would invalidate the
capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arraybridge import autograph


@contextmanager
def capturing() -> Iterator[None]:
    """Use it around the capture of a CUDA graph: `with arraybridge.capturing(), torch.cuda.graph(graph): ...`

    GPU memory is freed after all work that was queued on its GPU has ended. A query for that during a graph capture
    would invalidate the capture (CUDA's rule for calls that wait for a whole context), and the driver reports captures
    of other threads only if the default stream synchronises with them, which is not the case for PyTorch's. Inside the
    block no thread of the process makes the query: memory that is dropped there is freed afterwards, and `Broker.flush`
    does not wait for it. Blocks may nest and overlap, in any threads.

    Example:
        >>> with arraybridge.capturing():    # and torch.cuda.graph(graph)
        ...     pass
    """
    from arraybridge import _core  # loads the extension

    scope = _core.CaptureScope()
    try:
        yield
    finally:
        del scope


autograph.mark_module(__name__)
