# SPDX-License-Identifier: Apache-2.0
"""convert_memory and what builds on it with arrays on a GPU: the simulated one, and fakes of every framework's dialect."""

from collections.abc import Iterator

import pytest
import simulated


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with simulated.daemon() as (_, changed):
        yield changed


@pytest.mark.parametrize(
    "program",
    [
        "every_cell_of_pyclesperanto",
        "none_is_the_host",
        "strided_arrays_are_handed_over_or_made_compact_once",
        "numbers_of_gpus",
        "without_copying_only_what_can_be_shared",
        "slices_are_stacked_and_scaled_where_they_are",
        "every_conversion_is_a_method",
        "a_thousand_conversions_give_everything_back",
        "numba_and_capsules_reach_everybody",
    ],
)
def test_on_the_gpu(environment: dict[str, str], program: str) -> None:
    assert simulated.run("gpu/convert_program.py", environment, program) == "done\n"
