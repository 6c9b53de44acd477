# SPDX-License-Identifier: Apache-2.0
"""NumPy: respects read-only, takes any strides, and is the only framework with dtypes that DLPack lacks.

These dtypes travel under a logical name: bfloat16 and float8 (ml_dtypes) with their DLPack code; datetime64 and
timedelta64 as int64; structured dtypes as bytes, with the item size as an additional dimension and the description in
the name.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core
from arraybridge.adapters import ensure_module, named
from arraybridge.arrays import devices
from arraybridge.arrays.owners import owner_of
from arraybridge.errors import InvalidRequest, MemoryConversionError, UnsupportedArray, UnsupportedDtype
from arraybridge.planner import CODES, COMMON, FLOAT8, OPAQUE_PREFIXES, Caps, Code, Description, dtype_name, dtype_refused

if TYPE_CHECKING:
    from arraybridge._core import View

# ml_dtypes has all of them; those that its DLPack export lacks travel as an unsigned integer of the same width.
_VIA_ML_DTYPES: Final = FLOAT8 | {"bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"}
CAPS: Final = Caps(
    name="numpy",
    layout="strided",
    align_bytes=1,
    ndim_max=64,
    read_only="kept",
    private=False,
    dtypes=COMMON | _VIA_ML_DTYPES,
    opaque=True,
    settled=True,
)
STRUCT: Final = "struct:"
_FIELDS: Final = "pass its fields as a dict, {name: array[name] for name in array.dtype.names}"


def caps() -> Caps:
    return CAPS


def describe(array: Any) -> Description:
    return described(array, "" if array.flags.writeable else owner_of(array).may_change)


def described(array: Any, may_change: str = "") -> Description:
    """An ndarray, NumPy's own or one over another framework's memory, in the planner's terms."""
    refuse_masked(array)
    name, code = _traveling(array.dtype)
    itemsize = array.dtype.itemsize
    shape = tuple(array.shape)
    obstacles = []
    if not array.dtype.isnative:
        obstacles.append("byte_order: swapped in the copy")
    strides: tuple[int, ...] | None = None
    if name.startswith(STRUCT):
        shape = (*shape, itemsize)
        if not array.flags.c_contiguous:
            obstacles.append("layout: a structured array that is not compact")
    elif array.size and any(stride % itemsize for stride, size in zip(array.strides, shape, strict=True) if size > 1):
        obstacles.append("layout: strides that are not a multiple of the item size")
    else:
        strides = tuple(stride // itemsize for stride in array.strides)
    return Description(
        framework="numpy",
        dtype=name,
        code=code,
        shape=shape,
        strides=strides,
        address=array.__array_interface__["data"][0],
        read_only=not array.flags.writeable,
        may_change=may_change,
        obstacles=tuple(obstacles),
        fill=filler(array) if obstacles else None,
    )


def refuse_masked(array: Any) -> None:
    """Raises:
    UnsupportedArray: it has a mask, which readers of its values would lose.
    """
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)  # importing it takes milliseconds
    if masked is not None and isinstance(array, masked):
        raise UnsupportedArray("numpy", "any", "hand_over", "a masked array's mask would be lost: pass .data or .filled()")


def location(array: Any) -> devices.Device:
    return devices.HOST


def export(array: Any) -> View:
    np = _numpy()
    name, code = _traveling(array.dtype)
    plain = np.asarray(array)
    if name.startswith(STRUCT):
        flat = plain.reshape(-1).view(np.uint8).reshape((*plain.shape, plain.dtype.itemsize))
        return _wrapper()(flat).named(name)
    if name not in CODES:
        return _wrapper()(plain.view(np.int64)).named(name)
    if name in _VIA_ML_DTYPES:
        return _wrapper()(plain.view(f"u{code[1] // 8}")).named(name, code)
    return _wrapper()(plain)


def view(view: View) -> Any:
    name = view.dtype_name
    if name in COMMON or not name:
        return _core.ndarray(view)
    if name in _VIA_ML_DTYPES:
        bits = CODES[name][1]
        return _core.ndarray(view.named(f"uint{bits}", (1, bits, 1))).view(dtype_of(name))
    dtype = opaque_dtype(name, view.dtype_code, view.shape)
    if not name.startswith(STRUCT):
        return _core.ndarray(view.named("int64")).view(dtype)
    data = _core.ndarray(view.named("uint8"))
    array = _numpy().ndarray(data.shape[:-1], dtype, buffer=data)
    return frozen(array) if view.read_only else array  # NumPy drops the flag of arrays without elements


def module() -> Any:
    """Imports NumPy.

    Raises:
        FrameworkNotAvailable: it is not installed.
    """
    return _numpy()


@functools.cache
def _numpy() -> Any:
    # An import that succeeded once is not repeated: hot paths need the module for each array.
    return ensure_module("numpy")


def ordinary(kind: type) -> Callable[[Any], View] | None:
    """A function that makes Views of ordinary arrays of exactly this class and raises for others."""
    return _wrapper() if kind is _numpy().ndarray else None


def constant(target: str) -> Callable[[Any], View] | None:
    """A function that makes Views of ordinary arrays for a framework with constant arrays. None: for other frameworks."""
    return _constant if named(target).caps().read_only == "immutable" else None


def _constant(array: Any) -> View:
    found = _core.wrap(array)
    if found.read_only and owner_of(array).may_change:
        raise UnsupportedArray("numpy", "any", "hand_over", "the array is not an ordinary one")
    return found


def quick(dtype: str) -> Callable[[View], Any]:
    """`view` for compact host memory of this dtype."""
    return _core.ndarray if dtype in COMMON else view


def narrowed(source: View, dtype: str) -> View:
    """A private copy of `source` as `dtype`, in memory of this process, 256-byte aligned.

    Raises:
        MemoryConversionError: an integer does not fit.
    """
    np = _numpy()
    array = view(source)
    target = np.dtype(dtype)
    if target.kind in "iu" and array.size:
        limits = np.iinfo(target)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            span = f"the values are {int(array.min())} to {int(array.max())}, {dtype} has {limits.min} to {limits.max}"
            reason = f"a value does not fit into {dtype} ({span}): keep {source.dtype_name}, or clip the values first"
            raise MemoryConversionError(source.dtype_name, dtype, "place", reason)
    result = _aligned(target, array.shape)
    np.copyto(result, array, casting="unsafe")
    return _wrapper()(result)


def empty_view(dtype: str, code: Code, shape: tuple[int, ...]) -> View:
    """Memory of this process for an array, with undefined content: compact row-major, 256-byte aligned.

    Args:
        dtype, code, shape: as the array travels.
    """
    if dtype in COMMON:
        return _wrapper()(_aligned(dtype, shape))
    return _wrapper()(_aligned(f"{'i' if code[0] == 0 else 'u'}{code[1] // 8}", shape)).named(dtype, code)


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """An ndarray with undefined content that every framework can share: compact row-major, 256-byte aligned.

    Raises:
        UnsupportedDtype: this dtype cannot be shared with any framework.
    """
    name, code, more = traveling(dtype)
    return view(empty_view(name, code, (*shape, *more)))


def seen(source: Any) -> Any:
    """An ndarray over the memory of an object that no View describes: numbers of the other byte order (a PIL image, a
    memoryview), structs of ctypes, dates, and dtypes whose refusal by NumPy says what to do. None: NumPy does not see one,
    or sees Python objects.
    """
    np = _numpy()
    try:
        if getattr(source, "__array_interface__", {}).get("mask") is not None:
            return None
        if any(base.__module__ == "_ctypes" for base in type(source).__mro__):
            made = np.ndarray((), np.dtype(type(source)), source)  # NumPy's reader of buffers warns that it guesses
        else:
            made = np.asarray(source if hasattr(source, "__array_interface__") else memoryview(source))
    except Exception:
        return None
    number = made.dtype.isnative and made.dtype.kind in "biufc"
    return None if made.dtype.hasobject or (number and made.dtype.name in CODES) else made


def dtype_of(name: str) -> Any:
    """NumPy's dtype of a logical name among planner.CODES.

    Raises:
        UnsupportedDtype: NumPy has none. FrameworkNotAvailable: ml_dtypes, which has it, is not installed.
    """
    np = _numpy()
    found = name if name in COMMON else getattr(ensure_module("ml_dtypes"), name, None)
    if found is None:
        raise UnsupportedDtype("array", "numpy", "place", f"numpy has no dtype for {name}")
    return np.dtype(found)


def _aligned(dtype: Any, shape: tuple[int, ...]) -> Any:
    np = _numpy()
    found = np.dtype(dtype)
    nbytes = math.prod(shape) * found.itemsize
    memory = np.empty(nbytes + 256, np.uint8)
    start = -memory.__array_interface__["data"][0] % 256
    return memory[start : start + nbytes].view(found).reshape(shape)


def traveling(dtype: Any) -> tuple[str, Code, tuple[int, ...]]:
    """How arrays of this dtype travel: logical name, code, and the dimensions that are added to their shape.

    Args:
        dtype: a logical name, a dtype of a framework, or any argument of numpy.dtype.

    Raises:
        UnsupportedDtype: it is not a dtype, or cannot be shared with any framework.
    """
    known = dtype_name(dtype)
    if known in CODES:
        return known, CODES[known], ()
    np = _numpy()
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        reason = f"{dtype!r} is not a dtype of NumPy: pass a name such as 'float32', or the dtype of an array that can be shared"
        raise UnsupportedDtype("numpy", "any", "place", reason) from error
    name, code = _traveling(found)
    return name, code, (found.itemsize,) if name.startswith(STRUCT) else ()


def filler(source: Any) -> Callable[[View], None]:
    """A function that writes the values of `source`, an ndarray or a View, into a View of its shape and dtype."""

    def fill(target: View) -> None:
        copyto = _numpy().copyto
        if isinstance(source, _core.View):
            copyto(bits_of(target), bits_of(source))
        else:
            copyto(view(target), source)

    return fill


def bits_of(source: View) -> Any:
    """The same memory as unsigned integers where NumPy has them, because it lacks dtypes of other frameworks."""
    width = source.dtype_code[1]
    return view(source.named(f"uint{width}", (1, width, 1)) if width <= 64 else source)


def frozen(source: Any) -> Any:
    """The same memory as a read-only ndarray, for frameworks with immutable arrays and a writable alias."""
    alias = _numpy().asarray(source).view()
    alias.flags.writeable = False
    return alias


def freeze(array: Any) -> None:
    """Makes this array itself read-only, and the arrays that it is a view of."""
    np = _numpy()
    while isinstance(array, np.ndarray):
        array.flags.writeable = False
        array = array.base


def opaque_dtype(name: str, code: Code, shape: tuple[int, ...]) -> Any:
    """The NumPy dtype of a logical name. The name comes from another process, so it is checked against the bytes.

    Raises:
        UnsupportedDtype: it does not fit, or is not a dtype of NumPy.
    """
    np = _numpy()
    try:
        if not name.startswith(OPAQUE_PREFIXES):
            raise InvalidRequest("an unknown name")
        described = _tuples(json.loads(name[len(STRUCT) :])) if name.startswith(STRUCT) else name
        dtype = np.lib.format.descr_to_dtype(described)
    except (ValueError, TypeError, KeyError, RecursionError, SyntaxError) as error:
        raise UnsupportedDtype("share", "numpy", "hand_over", f"not a dtype of NumPy: {name[:64]!r}") from error
    fits = code == (1, 8, 1) and shape[-1:] == (dtype.itemsize,) if name.startswith(STRUCT) else code == (0, 64, 1)
    if not fits or dtype.hasobject or not dtype.itemsize or dtype.kind not in "VMm":
        raise UnsupportedDtype("share", "numpy", "hand_over", f"the bytes do not fit the dtype {name[:64]!r}")
    return dtype


@functools.cache
def _wrapper() -> Callable[[Any], View]:
    """The function that makes Views of ndarrays."""
    # Before 2.1 NumPy's DLPack is unversioned: it has no read-only flag and refuses read-only memory. Buffers have the
    # flag.
    return _core.wrap if _version() >= (2, 1) else _core.wrap_buffer


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in _numpy().__version__.split(".")[:2])


# NumPy computes the name of a dtype for 3 us each time. Only dtypes of CODES are kept, which are few.
_codes: Final[dict[Any, tuple[str, Code]]] = {}


def _traveling(dtype: Any) -> tuple[str, Code]:
    """The logical name of a NumPy dtype, and the code that its bytes travel with."""
    known = _codes.get(dtype)
    if known is not None:
        return known
    name = dtype.name
    if name in CODES:
        return _codes.setdefault(dtype, (name, CODES[name]))
    if dtype.kind in "Mm" and not dtype.metadata:
        return name, CODES["int64"]
    if dtype.names and not dtype.hasobject and dtype.itemsize:
        return STRUCT + _described(dtype.newbyteorder("=")), CODES["uint8"]
    raise dtype_refused("numpy", str(dtype), _way_out(dtype))


def _way_out(dtype: Any) -> str:
    """A conversion of an array whose dtype cannot be shared."""
    if dtype.hasobject and dtype.kind != "T":
        objects = "its elements are Python objects, which no other process can read"
        if dtype.names:
            return f"{objects}; {_FIELDS.replace('its fields', 'its other fields')}"
        return f"{objects}; convert numbers with astype(float), and put different arrays as a list or dict"
    if dtype.kind in "UST":
        return 'put the text beside an array, as {"text": numpy.asarray(text).tolist(), "values": values}'
    if dtype.kind == "V" and issubclass(dtype.type, _numpy().void):
        return 'pass its bytes, numpy.frombuffer(array.tobytes(), "uint8")'
    if dtype.kind == "V":  # a number that NumPy itself does not know, as int4: JAX packs its bits, so its bytes differ
        wider = "float32" if "float" in dtype.name else "uint8" if dtype.name.startswith("u") else "int8"
        return f'convert it with astype("{wider}")'
    if dtype.kind in "Mm":
        return 'its metadata would be lost; use view("int64")'
    return f"convert it, for example with astype({'complex' if dtype.kind == 'c' else 'float'})"


def _described(dtype: Any) -> str:
    """The text of a structured dtype, from which `opaque_dtype` makes the same dtype.

    Raises:
        UnsupportedDtype: there is no such text; names the field.
    """
    format = _numpy().lib.format
    try:
        text = json.dumps(format.dtype_to_descr(dtype), separators=(",", ":"))
        if format.descr_to_dtype(_tuples(json.loads(text))) == dtype:
            return text
    except (ValueError, TypeError):
        pass  # NumPy has no text for it, or cannot read its own text
    field = _unsayable(dtype)
    what = f"field {field[0]!r} is of {field[1]}" if field else f"the fields of {dtype} are out of order or overlap"
    raise UnsupportedDtype("numpy", "any", "hand_over", f"{what}, which its description cannot express: {_FIELDS}")


def _unsayable(dtype: Any) -> tuple[str, str] | None:
    """The first field whose dtype would not survive the text, with that dtype; inner fields by their path."""
    format = _numpy().lib.format
    for name in dtype.names:
        field = dtype.fields[name][0].base
        if field.names:
            inner = _unsayable(field)
            if inner:
                return f"{name}.{inner[0]}", inner[1]
            continue
        try:
            kept = format.descr_to_dtype(format.dtype_to_descr(field)) == field
        except (ValueError, TypeError):
            kept = False
        if not kept:
            return name, field.name
    return None


def _tuples(described: Any) -> Any:
    """dtype descriptions are lists of tuples, and JSON has only lists: a field is (name, type[, shape])."""
    if not isinstance(described, list):
        return described
    return [_field(*field) for field in described]


def _field(name: Any, kind: Any, shape: Any = None) -> tuple[Any, ...]:
    title = tuple(name) if isinstance(name, list) else name
    return (title, _tuples(kind)) if shape is None else (title, _tuples(kind), tuple(shape))


def gpus() -> Sequence[int]:
    return ()


def clean(number: int | None) -> None:
    """Does nothing: NumPy caches nothing."""


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError)
