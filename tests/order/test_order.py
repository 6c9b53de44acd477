# SPDX-License-Identifier: Apache-2.0
"""The protocols in shared memory are right in the memory models of C++ (RC11) and of AArch64, and each of their orders is
needed: herd7 finds no bad outcome in them, and finds it when a step is weaker.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import herd
import pytest
from aarch64 import translate
from litmus import MODELS, Litmus, order_of
from steps import Code

TESTS = [Litmus.read(path) for path in sorted(Path(__file__).parent.glob("litmus/*.litmus"))]
each = pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)


@pytest.fixture(scope="session")
def herd7() -> herd.Herd:
    return herd.fetch()


def program(test: Litmus, model: str) -> str:
    return translate(test.name, test.program()) if model == "aarch64" else test.program()


@pytest.mark.parametrize("model", MODELS)
@each
def test_herd_finds_nothing_bad_and_every_mutation(test: Litmus, model: str, herd7: herd.Herd, tmp_path: Path) -> None:
    weaker = {test.weakened(step).name: step for step in test.steps if step.change}
    texts = {test.name: program(test, model)} | {name: program(test.weakened(step), model) for name, step in weaker.items()}
    outcomes = herd7.outcomes(model, texts, tmp_path)
    assert not outcomes[test.name].bad, "the protocol is wrong"
    assert outcomes[test.name].states > 1
    seen = {(step.line + 1, step.code): outcomes[name].bad for name, step in weaker.items()}
    assert seen == {(step.line + 1, step.code): model in step.seen for step in weaker.values()}


@each
def test_every_mutation_is_caught_by_a_model(test: Litmus) -> None:
    weaker = [step for step in test.steps if step.change]
    assert weaker, "no step of it is needed"
    assert all(step.seen and step.seen <= set(MODELS) for step in weaker)


@each
def test_the_functions_and_steps_are_those_of_the_code(test: Litmus) -> None:
    code = Code(test)
    assert test.functions and not code.missing
    steps = [step for step in test.steps if step.quote]
    for step in steps:
        assert len(code.functions(step)) == 1, f"line {step.line + 1}, {step.quote}: {code.functions(step) or 'no function has it'}"
        assert order_of(step.quote) == order_of(step.code), step
    unshown = [
        f"line {second.line + 1}: {code.functions(first)[0]}, then {code.functions(second)[0]}"
        for first, second in itertools.pairwise(steps)
        if first.thread == second.thread and not second.later and not code.shows(first, second)
    ]
    assert not unshown, "no function of `models:` shows this order"


BUFFERED = """C buffered
{{ x = 0; y = 0; }}
P0 (atomic_int* x, atomic_int* y) {{
  atomic_store_explicit(x, 1, memory_order_release);
  {fence}
  int r = atomic_load_explicit(y, memory_order_relaxed);
}}
P1 (atomic_int* x, atomic_int* y) {{
  atomic_store_explicit(y, 1, memory_order_release);
  {fence}
  int r = atomic_load_explicit(x, memory_order_relaxed);
}}
exists (0:r=0 /\\ 1:r=0)
"""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("fence", "bad"), [("", True), ("atomic_thread_fence(memory_order_seq_cst);", False)])
def test_the_models_know_store_buffers(model: str, fence: str, bad: bool, herd7: herd.Herd, tmp_path: Path) -> None:
    buffered = Litmus("buffered", BUFFERED.format(fence=fence))
    assert herd7.outcomes(model, {"buffered": program(buffered, model)}, tmp_path)["buffered"].found == bad


def test_a_step_without_an_instruction_is_refused() -> None:
    with pytest.raises(ValueError, match="no instruction for: return;"):
        translate("early", BUFFERED.format(fence="return;"))
