"""Decorators that say what framework a function computes with, and bring its arrays there and back.

    @torch                       # or @torch(output_type="numpy", gpu_id=1)
    def blur(image, sigma): ...  # gets torch tensors, whatever it is called with
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar, cast

from arraybridge.arguments import check_word
from arraybridge.detect import SUPPORTED_MEMORY_TYPES, MemoryType, detect_memory_type
from arraybridge.errors import InvalidMemoryType

_F = TypeVar("_F", bound=Callable[..., Any])
_ADDED: Final = ("dtype_conversion", "slice_by_slice")


class DtypeConversion(Enum):
    """What dtype the main result of a decorated function has. Values that are dtypes are their names."""

    PRESERVE_INPUT = "preserve"  # that of the first array argument
    NATIVE_OUTPUT = "native"  # whatever the function returned
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
    """What a decorated function was decorated with."""

    own: str
    input_type: str
    output_type: str
    gpu_id: int | None
    dtype_conversion: DtypeConversion
    scaling: str
    oom_recovery: bool
    clear_cuda_cache: bool
    contract: Callable[[Any], Any] | None


def memory_types(
    input_type: str, output_type: str, contract: Callable[[Any], Any] | None = None
) -> Callable[[_F], _F]:
    """Declares what a function takes and returns, as `.input_memory_type` and `.output_memory_type`. Converts nothing.

    Args:
        contract: called with every result; a falsy answer is a ValueError.

    Raises:
        InvalidMemoryType: no memory type, when decorating.
    """
    taken, returned = _checked(input_type), _checked(output_type)

    def declared(func: _F) -> _F:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            _keep(contract, result, func)
            return result

        return cast(_F, _marked(wrapper, taken, returned))

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
            _checked(input_type),
            _checked(output_type),
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
    and `slice_by_slice`, unless it has parameters of these names itself.

    Args:
        input_type, output_type: memory types; {own} if nothing is said.
        gpu_id: where arrays are converted to, as convert_memory takes it.
        dtype_conversion: the dtype of the main result; PRESERVE_INPUT is that of the first array argument.
        scaling: by which rule of scale_dtype.
        oom_recovery: out of memory, the framework's caches are cleared and the body runs again, at most twice.
        clear_cuda_cache: the framework's caches are cleared after every call.
        contract: called with the final main result; a falsy answer is a ValueError.

    Raises:
        InvalidMemoryType: no memory type, when decorating. A call raises what convert_memory, scale_dtype and the function
        itself raise.
    """

# Of these names only in this module: `from arraybridge import *` leaves them out.
numpy = _decorator(MemoryType.NUMPY)
cupy = _decorator(MemoryType.CUPY)
torch = _decorator(MemoryType.TORCH)
tensorflow = _decorator(MemoryType.TENSORFLOW)
jax = _decorator(MemoryType.JAX)
pyclesperanto = _decorator(MemoryType.PYCLESPERANTO)


def _wrapped(func: Callable[..., Any], options: _Options) -> Any:
    signature = _signature(func)
    added = [name for name in _ADDED if name not in signature.parameters]

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in added if name in kwargs}
        policy = given.get("dtype_conversion")
        policy = options.dtype_conversion if policy is None else DtypeConversion(policy)
        return _called(func, args, kwargs, options, policy, bool(given.get("slice_by_slice")))

    wrapper.__signature__ = _extended(signature, added, options)  # type: ignore[attr-defined]
    text = f"Computes with {options.own}: takes {options.input_type} arrays, returns {options.output_type}."
    wrapper.__doc__ = f"{inspect.cleandoc(func.__doc__)}\n\n{text}" if func.__doc__ else text
    return _marked(wrapper, options.input_type, options.output_type)


def _called(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: _Options,
    policy: DtypeConversion,
    slice_by_slice: bool,
) -> Any:
    arrays = [each for each in (*args, *kwargs.values()) if detect_memory_type(each) is not None]
    dtype = getattr(arrays[0], "dtype", None) if arrays else None

    def taken(value: Any) -> Any:
        found = detect_memory_type(value)
        return value if found in (None, options.input_type) else _converted(value, options.input_type, options.gpu_id)

    args = tuple(taken(each) for each in args)
    kwargs = {name: taken(each) for name, each in kwargs.items()}
    try:
        result = _computed(func, args, kwargs, options, slice_by_slice)
        main = _finished(result[0] if _is_pair(result) else result, dtype, options, policy)
    finally:
        if options.clear_cuda_cache:
            from arraybridge.cleanup import clear_cache

            clear_cache(options.own)
    _keep(options.contract, main, func)
    if not _is_pair(result):
        return main
    if main is result[0]:
        return result
    rest = (main, *result[1:])
    return type(result)._make(rest) if hasattr(result, "_make") else rest


def _computed(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: _Options, slice_by_slice: bool
) -> Any:
    def body(*args: Any, **kwargs: Any) -> Any:
        if not options.oom_recovery:
            return func(*args, **kwargs)
        from arraybridge.cleanup import execute_with_oom_recovery

        return execute_with_oom_recovery(lambda: func(*args, **kwargs), options.own)

    place = _first_array(args, kwargs) if slice_by_slice else None
    if place is None:
        return body(*args, **kwargs)
    image = args[place] if isinstance(place, int) else kwargs[place]
    if len(image.shape) != 3:
        return body(*args, **kwargs)
    from arraybridge.stacking import process_slices

    def one(plane: Any) -> Any:
        if isinstance(place, int):
            return body(*args[:place], plane, *args[place + 1 :], **kwargs)
        return body(*args, **{**kwargs, place: plane})

    return process_slices(image, one)


def _first_array(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | str | None:
    """Where the first array argument is: its number, or its name. A method's is not its first argument."""
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return next((place for place, value in named if detect_memory_type(value) is not None), None)


def _finished(main: Any, dtype: Any, options: _Options, policy: DtypeConversion) -> Any:
    """The main result in its dtype and framework; what is no array as it is."""
    found = detect_memory_type(main)
    if found is None:
        return main
    wanted = dtype if policy is DtypeConversion.PRESERVE_INPUT else policy.value
    if wanted is None or policy is DtypeConversion.NATIVE_OUTPUT:
        return _brought(main, options)
    from arraybridge.scaling import has_dtype, scale_dtype

    # Where the function's framework lacks the dtype (JAX without x64), the other one may have it.
    if has_dtype(found, wanted):
        return _brought(scale_dtype(main, wanted, scaling=cast(Any, options.scaling)), options)
    return scale_dtype(_brought(main, options), wanted, scaling=cast(Any, options.scaling))


def _brought(main: Any, options: _Options) -> Any:
    found = detect_memory_type(main)
    return main if found == options.output_type else _converted(main, options.output_type, options.gpu_id)


def _converted(array: Any, memory_type: str, gpu_id: int | None) -> Any:
    from arraybridge.convert import convert_memory

    return convert_memory(array, None, memory_type, gpu_id)


def _is_pair(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) > 0


def _keep(contract: Callable[[Any], Any] | None, result: Any, func: Callable[..., Any]) -> None:
    if contract is not None and not contract(result):
        raise ValueError(f"{getattr(func, '__name__', func)} violated its output contract")


def _checked(memory_type: object) -> str:
    if isinstance(memory_type, str) and memory_type in SUPPORTED_MEMORY_TYPES:
        return str(memory_type)
    known = sorted(each.value for each in MemoryType)
    reason = f"{memory_type!r} is no memory type; use one of {known}"
    raise InvalidMemoryType(str(memory_type), str(memory_type), "detect", reason)


def _marked(wrapper: Any, input_type: str, output_type: str) -> Any:
    wrapper.input_memory_type = input_type
    wrapper.output_memory_type = output_type
    return wrapper


def _signature(func: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(func)
    except (TypeError, ValueError):  # a builtin that does not tell
        kinds = inspect.Parameter
        return inspect.Signature([kinds("args", kinds.VAR_POSITIONAL), kinds("kwargs", kinds.VAR_KEYWORD)])


def _extended(signature: inspect.Signature, added: list[str], options: _Options) -> inspect.Signature:
    """With the added keywords, before **kwargs."""
    defaults = {"dtype_conversion": options.dtype_conversion, "slice_by_slice": False}
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name]) for name in added]
    own = list(signature.parameters.values())
    variable = [each for each in own if each.kind is inspect.Parameter.VAR_KEYWORD]
    return signature.replace(parameters=[*own[: len(own) - len(variable)], *more, *variable])
