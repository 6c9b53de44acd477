# SPDX-License-Identifier: Apache-2.0
"""Digests of arguments and of code: equal ones mean that a function would return the same."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import PurePath
from types import CodeType, FunctionType
from typing import Any

from arraybridge import autograph
from arraybridge.broker.placing import bytes_of, readable, source_of_share
from arraybridge.conversion import tree
from arraybridge.errors import InvalidRequest, MemoryConversionError

_Hash = Any  # hashlib has no public name for it


def of_values(values: dict[str, Any], whose: str) -> bytes:
    """The digest of named values: of plain values, arrays of any framework with all their bytes, paths, and containers,
    dataclasses and tables of these.

    Raises:
        InvalidRequest: the content of a value cannot be told.
    """
    found = _new()
    try:
        structure, leaves = tree.flatten(values, _of_leaf)
    except (MemoryConversionError, InvalidRequest) as error:
        reason = error.message
        text = f"{whose}: the content of a value cannot be told: {reason}; pass key=, a function of the same arguments"
        raise InvalidRequest(text) from error
    _add(found, structure)
    for leaf in leaves:
        _add(found, leaf)
    return bytes(found.digest())


def joined(*parts: bytes) -> str:
    """The digest of these, in hexadecimal digits."""
    found = _new()
    for part in parts:
        _add(found, part)
    return str(found.hexdigest())


def of_function(function: Callable[..., Any], closure: bool) -> bytes:
    """The digest of a function's name and code, and of what wraps it by functools.wraps; not of what it calls. With `closure`
    also of the values that these close over: of a wrapper's, those whose content can be told.

    Raises:
        InvalidRequest: the content of a value that the function itself closes over cannot be told.
    """
    found = _new()
    _add(found, f"{function.__module__}.{function.__qualname__}".encode())
    seen: set[int] | None = set() if closure else None
    *wrappers, inner = layers(function)
    _add_function(found, inner, seen, strict=True)
    for each in wrappers:
        _add_function(found, each, seen, strict=False)
    return bytes(found.digest())


def layers(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The functions that functools.wraps has put around a function, from the outside, and then the function."""
    found: list[Callable[..., Any]] = []

    def noted(each: Callable[..., Any]) -> bool:
        found.append(each)
        return False  # so that it goes on

    inner = inspect.unwrap(function, stop=noted)
    return [*found, inner]


def _add_function(found: _Hash, function: Callable[..., Any], seen: set[int] | None, strict: bool) -> None:
    if not isinstance(function, FunctionType):
        return  # one that is written in C has its name alone
    _add_code(found, function.__code__)
    if seen is None or id(function) in seen:
        return
    seen.add(id(function))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # it is not bound yet
            continue
        _add(found, name.encode())
        if isinstance(value, FunctionType):
            _add_function(found, value, seen, strict)
            value = {"defaults": value.__defaults__, "keywords": value.__kwdefaults__}
        try:
            _add(found, of_values({name: value}, f"{function.__qualname__} uses {name!r} of the function around it"))
        except InvalidRequest:
            if strict:
                raise


def _add_code(found: _Hash, code: CodeType) -> None:
    _add(found, code.co_code)
    _add(found, repr((code.co_names, code.co_varnames, code.co_flags)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(found, constant)
        else:
            _add(found, _text(constant).encode())


def _text(constant: Any) -> str:
    """The same in each process: a set's own text depends on the process."""
    if isinstance(constant, frozenset):
        return repr(sorted(map(_text, constant)))
    if isinstance(constant, tuple):
        return f"({', '.join(map(_text, constant))})"
    return repr(constant)


def _of_leaf(leaf: Any) -> bytes:
    found = _new()
    if isinstance(leaf, PurePath):
        _add(found, b"path")
        _add(found, str(leaf).encode("utf-8", "surrogateescape"))
        return bytes(found.digest())
    source = source_of_share(leaf)
    description = source.description
    _add(found, f"{description.framework} {description.dtype} {tuple(description.shape)}".encode())
    found.update(bytes_of(readable(source)))
    return bytes(found.digest())


def _new() -> _Hash:
    return hashlib.blake2b(digest_size=16)


def _add(found: _Hash, part: bytes) -> None:
    found.update(len(part).to_bytes(8, "little"))
    found.update(part)


autograph.mark_module(__name__)
