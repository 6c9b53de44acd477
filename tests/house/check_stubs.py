# SPDX-License-Identifier: Apache-2.0
"""Compares the extension's stub with the installed extension: names, parameters and defaults, by stubtest.

pybind11 writes signatures as the first line of its docstrings, which `inspect` does not read and stubtest therefore
ignores. So this script replaces its methods, in this process, by functions with the parameters of that line.

    check_stubs.py [mypy.ini]      another configuration, whose mypy_path finds another stub
"""

from __future__ import annotations

import ast
import sys
import tempfile
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from mypy import nodes, stubtest

from arraybridge import _core

ROOT = Path(__file__).resolve().parents[2]
# Differences from the stub that are correct.
ALLOWED = r"""
# pybind11's types have a metaclass of their own, which does not matter to users.
arraybridge\._core\.(Bundle|BundlePlan|CaptureScope|ChannelEnd|Core|DescribedTable|Placement|PutOptions|SwapWindow|WatchEnd)
# They cannot be constructed: their __init__ is object's and raises a TypeError.
arraybridge\._core\.(ChannelEnd|Placement|WatchEnd)\.__init__
# PEP 688: the buffer protocol for type checkers of every version; C types have the method since Python 3.12.
arraybridge\._core\.View\.__buffer__
"""


def shape_of(told: str) -> Callable[..., None]:
    """A function with the parameters and defaults of pybind11's `name(self: …, a: … = 1) -> …`."""
    (function,) = ast.parse(f"def {told}: ...").body
    assert isinstance(function, ast.FunctionDef), told
    words = function.args
    kinds = [(words.posonlyargs, Parameter.POSITIONAL_ONLY), (words.args, Parameter.POSITIONAL_OR_KEYWORD)]
    positional = [(each.arg, kind) for group, kind in kinds for each in group]
    defaults = [*[None] * (len(positional) - len(words.defaults)), *words.defaults]
    found = [made(name, kind, default) for (name, kind), default in zip(positional, defaults, strict=True)]
    if words.vararg is not None:
        found.append(made(words.vararg.arg, Parameter.VAR_POSITIONAL, None))
    found += [made(each.arg, Parameter.KEYWORD_ONLY, default) for each, default in zip(words.kwonlyargs, words.kw_defaults, strict=True)]
    if words.kwarg is not None:
        found.append(made(words.kwarg.arg, Parameter.VAR_KEYWORD, None))

    def shown(*args: object, **kwargs: object) -> None:
        raise AssertionError("for its signature alone")

    shown.__signature__ = Signature(found)  # type: ignore[attr-defined]
    return shown


def made(name: str, kind: Any, default: ast.expr | None) -> Parameter:
    return Parameter(name, kind, default=Parameter.empty if default is None else ast.literal_eval(default))


def show_signatures() -> int:
    """Returns the number of methods whose parameters could be read."""
    shown = 0
    for kind in vars(_core).values():
        if type(kind).__name__ != "pybind11_type":
            continue
        for name, method in list(vars(kind).items()):
            told = (getattr(method, "__doc__", None) or "").partition("\n")[0]
            if type(method).__name__ == "instancemethod" and told.startswith(f"{name}("):
                setattr(kind, name, shape_of(told))
                shown += 1
    return shown


def accept_final() -> None:
    """An attribute that is Final in the stub may be a property without a setter: neither can be assigned."""
    verified = stubtest.verify.dispatch(nodes.Var)

    @stubtest.verify.register(nodes.Var)
    def _(stub: nodes.Var, runtime: Any, path: list[str]) -> Iterator[stubtest.Error]:
        for error in verified(stub, runtime, path):
            if not (stub.is_final and error.message.startswith("is read-only at runtime")):
                yield error


def main(arguments: list[str]) -> int:
    config = arguments[0] if arguments else str(ROOT / "mypy.ini")
    if show_signatures() == 0:
        print("pybind11 no longer says in its docstrings what parameters there are: nothing would be compared")
        return 1
    accept_final()
    with tempfile.NamedTemporaryFile("w", suffix=".allowed") as allowed:
        allowed.write(ALLOWED)
        allowed.flush()
        flags = ["arraybridge._core", "--concise", "--mypy-config-file", config, "--allowlist", allowed.name]
        return stubtest.test_stubs(stubtest.parse_options(flags))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
