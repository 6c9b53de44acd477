# SPDX-License-Identifier: Apache-2.0
"""Every public name has a docstring that says what it is, and an example, in its docstring or its module's, that works."""

import ast
import collections
import doctest
import errno
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import arraybridge
from arraybridge import Broker, convert_memory

pytest.importorskip("torch", reason="torch is not installed")

SITE = Path(__file__).resolve().parents[3] / "docs/site/make_references.py"
DECORATORS = ("numpy", "cupy", "torch", "tensorflow", "jax", "pyclesperanto")
PUBLIC = sorted({*arraybridge.__all__, *DECORATORS})
# The calls that a user meets first: each has an example of its own.
FIRST = """
Broker.put Broker.get Broker.empty Broker.convert Broker.channel Broker.open Broker.list Broker.withdraw Broker.watch
Channel.send Channel.receive Share convert_memory detect_memory_type to_bytes from_bytes stack_slices
""".split()
# Of Python itself: what it says of these members is not about this package.
OF_PYTHON = {*dir(tuple), *dir(dict), *dir(str), *dir(OSError), *dir(ImportError), "_replace", "_asdict", "_fields", "_make"}
# The modules of constants; of the others, arraybridge.detect.
CONSTANTS = {"MEMORY_TYPE_CLEANUP_REGISTRY": "arraybridge.compat.cleanup", "SCALING_FUNCTIONS": "arraybridge.compat.scaling"}


def home_of(name: str) -> str:
    """The module that defines a public name, of a constant too."""
    of = getattr(arraybridge, name)
    own = getattr(of, "__module__", None) if inspect.isclass(of) or inspect.isfunction(of) else None
    return own or CONSTANTS.get(name, "arraybridge.detect")


def members_of(kind: type) -> Iterator[str]:
    """The public attributes of a class, its own and those of this package's classes above it, and of its objects."""
    for each in kind.__mro__:
        if each.__module__.startswith("arraybridge"):
            yield from (name for name in vars(each) if not name.startswith("_"))
            yield from (name for name in getattr(each, "__annotations__", {}) if not name.startswith("_"))


def attributes_in(text: str) -> set[str]:
    """The names that the section `Attributes` of a docstring explains."""
    section = re.search(r"^Attributes:\n((?:    .*\n|\n)+)", inspect.cleandoc(text) + "\n", re.MULTILINE)
    lines = re.findall(r"^    ([\w, ]+):", section[1] if section else "", re.MULTILINE)
    return {name for line in lines for name in line.split(", ")}


def undocumented(kind: type) -> set[str]:
    """The public members of a class about which neither a docstring nor the class's section `Attributes` says anything."""
    explained = set().union(*(attributes_in(each.__doc__ or "") for each in kind.__mro__)) | OF_PYTHON
    found = set()
    for name in {*members_of(kind)} - explained:
        text = getattr(inspect.getattr_static(kind, name, None), "__doc__", None) or ""
        of_its_class = type(inspect.getattr_static(kind, name, None)).__doc__
        if len(text.split()) < 3 or text == of_its_class or text.startswith("Alias for field number"):
            found.add(name)
    return found


def test_what_has_no_docstring_is_found() -> None:
    class Named(collections.namedtuple("Fields", "first second")):
        """A class.

        Attributes:
            first: explained.
        """

        third = "a value, whose class has a docstring"

        def fourth(self) -> None: ...
        def fifth(self) -> None:
            """It has one."""

    Named.__module__ = Named.__mro__[1].__module__ = "arraybridge.test"
    assert undocumented(Named) == {"second", "third", "fourth"}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_docstring(name: str) -> None:
    of = getattr(arraybridge, name)
    if not callable(of):
        assert name in (sys.modules[home_of(name)].__doc__ or ""), "a constant is explained by the docstring of its module"
        return
    assert len((of.__doc__ or "").split()) >= 3
    assert not inspect.isclass(of) or undocumented(of) == set()


def test_the_reference_has_every_public_name() -> None:
    (groups,) = (
        each.value
        for each in ast.parse(SITE.read_text()).body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == "GROUPS"
    )
    # The errors are listed by a program, and so are names without a group: at its end.
    listed = {name for part in ast.walk(groups) if isinstance(part, ast.Constant) for name in str(part.value).split()}
    errors = {name for name in PUBLIC if inspect.isclass(of := getattr(arraybridge, name)) and issubclass(of, Exception)}
    constants = {name for name in PUBLIC if not callable(getattr(arraybridge, name)) and home_of(name) == "arraybridge.detect"}
    assert set(PUBLIC) - listed - errors - constants == set(), "add them to GROUPS in docs/site/make_references.py"


def parsed(name: str, text: str) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(inspect.cleandoc(text), {}, name, None, None)


def docstrings() -> dict[str, str]:
    """The docstrings of public names, of their classes' methods and of their modules, if they have examples."""
    found = {}
    for name in PUBLIC:
        of = getattr(arraybridge, name)
        home = home_of(name)
        found[home] = sys.modules[home].__doc__ or ""
        if callable(of):
            found[name] = of.__doc__ or ""
        for member in members_of(of) if inspect.isclass(of) else ():
            method = inspect.getattr_static(of, member, None)
            found[f"{name}.{member}"] = getattr(method, "__doc__", None) or ""
    return {name: text for name, text in found.items() if ">>>" in text}


EXAMPLES = docstrings()


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example(name: str) -> None:
    shown = " ".join(each.source + each.want for each in parsed(name, EXAMPLES.get(home_of(name), "")).examples)
    assert name in EXAMPLES or re.search(rf"\b{name}\b", shown), f"neither its docstring nor that of {home_of(name)} has one"


@pytest.mark.parametrize("name", FIRST)
def test_a_call_that_users_meet_first_has_an_example(name: str) -> None:
    assert name in EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_works(name: str, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test = parsed(name, EXAMPLES[name])
    names = {"np": np, "arraybridge": arraybridge, "Broker": Broker, "convert_memory": convert_memory, "broker": broker}
    names |= {"collections": collections, "errno": errno}
    lines = "".join(each.source + each.want for each in test.examples).splitlines()
    assert 1 <= len(lines) <= 20, "an example is short"
    with broker.channel("frames") as frames:
        test.globs = {**names, "frames": frames}
        said: list[str] = []
        flags = doctest.ELLIPSIS
        outcome = doctest.DocTestRunner(verbose=False, optionflags=flags).run(test, out=said.append)
    assert outcome.failed == 0 and outcome.attempted == len(test.examples), "".join(said)
