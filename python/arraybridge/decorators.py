# SPDX-License-Identifier: Apache-2.0
"""Decorators that name the framework of a function and convert its arguments and results.

For example:

    >>> @arraybridge.torch(output_type="numpy", gpu_id=None)
    ... def halved(image):    # gets torch tensors, whatever it is called with
    ...     return image / 2
    >>> halved(np.ones(2))
    array([0.5, 0.5])

`arraybridge.numpy`, `arraybridge.cupy`, `arraybridge.tensorflow`, `arraybridge.jax` and `arraybridge.pyclesperanto` are used
in the same way:

    >>> @arraybridge.numpy
    ... def summed(image):
    ...     return image.sum(axis=0)
    >>> summed(np.ones((2, 3)))
    array([2., 2., 2.])
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from arraybridge import autograph
from arraybridge.arguments import check_word
from arraybridge.arrays.classes import memory_type_named
from arraybridge.detect import MemoryType, detect_memory_type

if TYPE_CHECKING:
    from arraybridge.compat.stacking import Planes

_F = TypeVar("_F", bound=Callable[..., Any])
_ADDED: Final = ("dtype_conversion", "slice_by_slice")


class DtypeConversion(Enum):
    """The dtype of the main result of a decorated function. Values that are dtypes are their names.

    Attributes:
        PRESERVE_INPUT: the dtype of the first array argument.
        NATIVE_OUTPUT: the dtype of the function's result.
        UINT8, UINT16, INT16, INT32, FLOAT32, FLOAT64: this dtype.

    Example:
        >>> @arraybridge.numpy(dtype_conversion=arraybridge.DtypeConversion.FLOAT32)
        ... def doubled(image):
        ...     return image * 2
        >>> doubled(np.ones(2)).dtype
        dtype('float32')
    """

    PRESERVE_INPUT = "preserve"
    NATIVE_OUTPUT = "native"
    UINT8 = "uint8"
    UINT16 = "uint16"
    INT16 = "int16"
    INT32 = "int32"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @property
    def numpy_dtype(self) -> Any:
        """NumPy's scalar type; None for PRESERVE_INPUT and NATIVE_OUTPUT. Imports NumPy."""
        if self in (DtypeConversion.PRESERVE_INPUT, DtypeConversion.NATIVE_OUTPUT):
            return None
        from arraybridge.adapters import ensure_module

        return getattr(ensure_module("numpy"), self.value)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a decorated function."""

    own: str
    input_type: str
    output_type: str
    gpu_id: int | None
    dtype_conversion: DtypeConversion
    scaling: str
    oom_recovery: bool
    clear_cuda_cache: bool
    contract: Callable[[Any], Any] | None


def memory_types(input_type: str, output_type: str, contract: Callable[[Any], Any] | None = None) -> Callable[[_F], _F]:
    """Declares what a function accepts and returns, as `.input_memory_type` and `.output_memory_type`. Converts
    nothing.

    Args:
        contract: called with every result, for `async def` with the awaited one; a falsy answer is a ValueError.

    Raises:
        InvalidMemoryType: not the name of a framework; raised when decorating.

    Example:
        >>> @arraybridge.memory_types("numpy", "torch")
        ... def segment(image):
        ...     return image
        >>> segment.output_memory_type
        'torch'
    """
    taken, returned = memory_type_named(input_type), memory_type_named(output_type)

    def declared(func: _F) -> _F:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            _keep(contract, result, func)
            return result

        @functools.wraps(func)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            result = await func(*args, **kwargs)
            _keep(contract, result, func)
            return result

        return cast(_F, _marked(awaiting if _is_awaited(func) else wrapper, taken, returned))

    return declared


def _decorator(own: MemoryType) -> Callable[..., Any]:
    def decorator(
        func: Callable[..., Any] | None = None,
        *,
        input_type: str = own,
        output_type: str = own,
        gpu_id: int | None = 0,
        dtype_conversion: DtypeConversion = DtypeConversion.PRESERVE_INPUT,
        scaling: str = "auto",
        oom_recovery: bool = True,
        clear_cuda_cache: bool = False,
        contract: Callable[[Any], Any] | None = None,
    ) -> Any:
        check_word(scaling, "scaling", ("auto", "clip", "unit", "full"))
        options = _Options(
            own.value,
            memory_type_named(input_type),
            memory_type_named(output_type),
            gpu_id,
            DtypeConversion(dtype_conversion),
            scaling,
            oom_recovery,
            clear_cuda_cache,
            contract,
        )
        return _wrapped(func, options) if func is not None else functools.partial(_wrapped, options=options)

    decorator.__name__ = decorator.__qualname__ = own.value
    decorator.__doc__ = _DECORATOR_TEXT.format(own=own.value)
    return decorator


_DECORATOR_TEXT: Final = """A function that computes with {own}: its arrays are converted before, its main result after.

    Bare or called. Array arguments, positional or keyword but not inside containers, that are of another framework become
    `input_type`; those of `input_type` stay where they are, and everything else passes untouched. The main result, which is
    the result or the first element of a tuple, becomes `output_type`. The function gains two keywords, `dtype_conversion`
    and `slice_by_slice`, unless it has parameters of these names itself. Of `async def`, what is awaited is the result.

    Args:
        input_type, output_type: memory types; {own} if nothing is said.
        gpu_id: where arrays are converted to, as convert_memory takes it.
        dtype_conversion: the dtype of the main result; PRESERVE_INPUT is that of the first array argument.
        scaling: by which rule of scale_dtype.
        oom_recovery: out of memory, the framework's caches are cleared and the body runs again, at most twice.
        clear_cuda_cache: the framework's caches are cleared after every call.
        contract: called with the final main result; a falsy answer is a ValueError.

    Raises:
        InvalidMemoryType: no memory type, when decorating. TypeError: a generator, also asynchronous, when decorating: what
        it yields would not be converted. A call raises what convert_memory, scale_dtype and the function
        itself raise.

    Example:
        >>> @arraybridge.{own}(output_type="numpy", gpu_id=None)
        ... def shown(image):
        ...     return image
        >>> shown.input_memory_type, shown.output_memory_type
        ('{own}', 'numpy')
    """

# These names are only in this module: `from arraybridge import *` omits them.
numpy = _decorator(MemoryType.NUMPY)
cupy = _decorator(MemoryType.CUPY)
torch = _decorator(MemoryType.TORCH)
tensorflow = _decorator(MemoryType.TENSORFLOW)
jax = _decorator(MemoryType.JAX)
pyclesperanto = _decorator(MemoryType.PYCLESPERANTO)


def _wrapped(func: Callable[..., Any], options: _Options) -> Any:
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        name = getattr(func, "__name__", func)
        raise TypeError(f"{name} is a generator, whose items would not be converted: decorate a function with one result")
    signature = _signature(func)
    added = [name for name in _ADDED if name not in signature.parameters]

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        given = {name: kwargs.pop(name) for name in added if name in kwargs}
        policy = given.get("dtype_conversion")
        policy = options.dtype_conversion if policy is None else DtypeConversion(policy)
        return _Call(func, args, kwargs, options, policy, bool(given.get("slice_by_slice")))

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs).result()

    @functools.wraps(func)
    async def awaiting(*args: Any, **kwargs: Any) -> Any:
        return await call(args, kwargs).awaited()

    made: Any = awaiting if _is_awaited(func) else wrapper
    made.__signature__ = _extended(signature, added, options)
    text = f"Computes with {options.own}: takes {options.input_type} arrays, returns {options.output_type}."
    made.__doc__ = f"{inspect.cleandoc(func.__doc__)}\n\n{text}" if func.__doc__ else text
    return _marked(made, options.input_type, options.output_type)


class _Call:
    """One call of a decorated function."""

    def __init__(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: _Options,
        policy: DtypeConversion,
        slice_by_slice: bool,
    ) -> None:
        arrays = [each for each in (*args, *kwargs.values()) if detect_memory_type(each) is not None]
        self._func = func
        self._options = options
        self._policy = policy
        self._dtype = getattr(arrays[0], "dtype", None) if arrays else None
        self._args = tuple(self._taken(each) for each in args)
        self._kwargs = {name: self._taken(each) for name, each in kwargs.items()}
        self._image = self._image_of(slice_by_slice)

    def result(self) -> Any:
        """The function's result, in the form for its caller."""
        from arraybridge.compat.cleanup import execute_with_oom_recovery as recovered

        def body(*args: Any, **kwargs: Any) -> Any:
            if not self._options.oom_recovery:
                return self._func(*args, **kwargs)
            return recovered(lambda: self._func(*args, **kwargs), self._options.own)

        with self._cleaned():
            if self._image is None:
                return self._returned(body(*self._args, **self._kwargs))
            planes = _planes(self._image)
            return self._returned(planes.restacked([body(*args, **kwargs) for args, kwargs in self._of_each(planes.slices)]))

    async def awaited(self) -> Any:
        """`result` for a coroutine function; slices are processed one after the other."""
        from arraybridge.compat.cleanup import await_with_oom_recovery as recovered

        async def body(*args: Any, **kwargs: Any) -> Any:
            if not self._options.oom_recovery:
                return await self._func(*args, **kwargs)
            return await recovered(lambda: self._func(*args, **kwargs), self._options.own)

        with self._cleaned():
            if self._image is None:
                return self._returned(await body(*self._args, **self._kwargs))
            planes = _planes(self._image)
            return self._returned(planes.restacked([await body(*args, **kwargs) for args, kwargs in self._of_each(planes.slices)]))

    def _taken(self, value: Any) -> Any:
        found, wanted = detect_memory_type(value), self._options.input_type
        return value if found in (None, wanted) else _converted(value, wanted, self._options.gpu_id)

    def _image_of(self, slice_by_slice: bool) -> Any:
        """The array whose slices are passed one by one; None: everything is passed at once."""
        self._place = _first_array(self._args, self._kwargs) if slice_by_slice else None
        if self._place is None:
            return None
        image = self._args[self._place] if isinstance(self._place, int) else self._kwargs[self._place]
        return image if len(image.shape) == 3 else None

    def _of_each(self, slices: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The arguments for each slice."""
        place = self._place
        for plane in slices:
            if isinstance(place, int):
                yield (*self._args[:place], plane, *self._args[place + 1 :]), self._kwargs
            else:
                yield self._args, {**self._kwargs, str(place): plane}

    def _returned(self, result: Any) -> Any:
        """The function's result, converted for its caller."""
        options = self._options
        main = _finished(result[0] if _is_pair(result) else result, self._dtype, options, self._policy)
        _keep(options.contract, main, self._func)
        if not _is_pair(result):
            return main
        if main is result[0]:
            return result
        rest = (main, *result[1:])
        return type(result)._make(rest) if hasattr(result, "_make") else rest

    @contextlib.contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Clears the framework's caches afterwards, if requested."""
        try:
            yield
        finally:
            if self._options.clear_cuda_cache:
                from arraybridge.compat.cleanup import clear_cache

                clear_cache(self._options.own)


def _planes(image: Any) -> Planes:
    from arraybridge.compat.stacking import Planes

    return Planes.of(image)


def _is_awaited(func: Callable[..., Any]) -> bool:
    """True if its result is awaited: a coroutine function, or an object whose __call__ is one."""
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(type(func), "__call__", None))  # noqa: B004


def _first_array(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | str | None:
    """The position or name of the first array argument. For a method it is not the first argument."""
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return next((place for place, value in named if detect_memory_type(value) is not None), None)


def _finished(main: Any, dtype: Any, options: _Options, policy: DtypeConversion) -> Any:
    """The main result in its dtype and framework; other objects unchanged."""
    found = detect_memory_type(main)
    if found is None:
        return main
    wanted = dtype if policy is DtypeConversion.PRESERVE_INPUT else policy.value
    if wanted is None or policy is DtypeConversion.NATIVE_OUTPUT:
        return _brought(main, options)
    from arraybridge.compat.scaling import has_dtype, scale_dtype

    # If the function's framework lacks the dtype (JAX without x64), the output's framework may have it.
    if has_dtype(found, wanted):
        return _brought(scale_dtype(main, wanted, scaling=cast(Any, options.scaling)), options)
    return scale_dtype(_brought(main, options), wanted, scaling=cast(Any, options.scaling))


def _brought(main: Any, options: _Options) -> Any:
    found = detect_memory_type(main)
    return main if found == options.output_type else _converted(main, options.output_type, options.gpu_id)


def _converted(array: Any, memory_type: str, gpu_id: int | None) -> Any:
    from arraybridge.conversion.memory import converted

    return converted(array, None, memory_type, gpu_id)


def _is_pair(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) > 0


def _keep(contract: Callable[[Any], Any] | None, result: Any, func: Callable[..., Any]) -> None:
    if contract is not None and not contract(result):
        name, kind = getattr(func, "__name__", func), type(result).__name__
        raise ValueError(f"{name} violated its output contract, which refuses this result of {kind}: return another, or change contract=")


def _marked(wrapper: Any, input_type: str, output_type: str) -> Any:
    autograph.unconverted(wrapper)
    wrapper.input_memory_type = input_type
    wrapper.output_memory_type = output_type
    return wrapper


def _signature(func: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(func)
    except (TypeError, ValueError):  # a builtin without a signature
        kinds = inspect.Parameter
        return inspect.Signature([kinds("args", kinds.VAR_POSITIONAL), kinds("kwargs", kinds.VAR_KEYWORD)])


def _extended(signature: inspect.Signature, added: list[str], options: _Options) -> inspect.Signature:
    """The signature with the added keywords, before **kwargs."""
    defaults = {"dtype_conversion": options.dtype_conversion, "slice_by_slice": False}
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name]) for name in added]
    own = list(signature.parameters.values())
    variable = [each for each in own if each.kind is inspect.Parameter.VAR_KEYWORD]
    return signature.replace(parameters=[*own[: len(own) - len(variable)], *more, *variable])


autograph.mark_module(__name__)
