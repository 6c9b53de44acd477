# SPDX-License-Identifier: Apache-2.0
"""Many host arrays go to a GPU together, by the simulated driver's own count."""

import pytest
import simulated

import arraybridge
from arraybridge import _core


def test_a_put_on_a_gpu_is_one_batch() -> None:
    with simulated.daemon() as (address, environment):
        assert simulated.run("gpu/uploads_program.py", environment, address) == "done\n"


def test_what_is_no_pair_of_views_is_refused() -> None:
    view = arraybridge.asdlpack(bytearray(4))
    with pytest.raises(BufferError, match="1 arrays for 0 destinations"):
        _core.copy_to_gpus([view], [])
    with pytest.raises(BufferError, match="destination is not on a GPU"):
        _core.copy_to_gpus([view], [view])
    for wrong in (3, [3], None):
        with pytest.raises(TypeError):
            _core.copy_to_gpus(wrong, [view])
