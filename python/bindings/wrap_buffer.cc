// SPDX-License-Identifier: Apache-2.0
// Makes Views of memory with older descriptions: the buffer protocol (PEP 3118) and the array interface. Properties
// that DLPack lacks (foreign byte order, masks, odd strides) raise BufferError before any byte is read.
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <arraybridge/device.h>

#include "python/bindings/exchange.h"
#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

constexpr uint8_t kInt = 0, kUint = 1, kFloat = 2, kComplex = 5, kBool = 6;

// While a Py_buffer is held, the exporter keeps the memory in place. It is held until the last View is destroyed.
class HeldBuffer {
 public:
  // nullptr with a Python error.
  static std::shared_ptr<HeldBuffer> Of(PyObject* object, int flags) {
    std::shared_ptr<HeldBuffer> held(new HeldBuffer, [](HeldBuffer* dead) {
      if (dead->buffer_.obj != nullptr) WithInterpreter([dead] { PyBuffer_Release(&dead->buffer_); });
      delete dead;
    });
    return PyObject_GetBuffer(object, &held->buffer_, flags) == 0 ? held : nullptr;
  }
  const Py_buffer& get() const { return buffer_; }

 private:
  HeldBuffer() = default;
  Py_buffer buffer_{};
};

PyObject* Refuse(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  return nullptr;
}

PyObject* FromDescription(Result<View> view) {
  return view.ok() ? NewView(*std::move(view)) : RaiseBuffer(view.status());
}

DataType Type(uint8_t code, int64_t bytes) {
  return {code, static_cast<uint8_t>(bytes <= 16 ? bytes * 8 : 0), 1};  // Describe refuses 0 bits
}

// bits 0: DLPack lacks the format.
DataType TypeOfFormat(const char* format, int64_t itemsize) {
  std::string_view text = format == nullptr ? "B" : format;
  if (text.starts_with('@') || text.starts_with('=') || text.starts_with('<')) text.remove_prefix(1);
  if (text == "Zf" || text == "Zd") return Type(kComplex, itemsize);
  if (text.size() != 1) return {};
  // ctypes calls unions and packed structs bytes of their whole size.
  if (std::strchr("cbB?", text[0]) != nullptr && itemsize != 1) return {};
  if (text == "?") return Type(kBool, itemsize);
  if (std::strchr("cbhilqn", text[0]) != nullptr) return Type(kInt, itemsize);
  if (std::strchr("BHILQN", text[0]) != nullptr) return Type(kUint, itemsize);
  if (std::strchr("efd", text[0]) != nullptr) return Type(kFloat, itemsize);
  return {};
}

PyObject* RefuseFormat(std::string_view format, int64_t itemsize) {
  const auto kind = format.find_first_not_of("@=<>!");
  const bool points = kind != std::string_view::npos && std::strchr("&PXOzZ", format[kind]) != nullptr;
  const char* const way_out = points ? "are addresses of this process: pass what they point to"
                                     : "have no dtype in DLPack: pass their bytes, bytes(array)";
  return Refuse(Concat("elements of buffer format '", format, "' and ", itemsize, " bytes ", way_out));
}

// "<f4": byte order, kind, bytes.
DataType TypeOfTypestr(std::string_view text) {
  if (text.size() < 3 || text.size() > 4) return {};
  int64_t bytes = 0;
  for (const char digit : text.substr(2)) {
    if (digit < '0' || digit > '9') return {};
    bytes = bytes * 10 + (digit - '0');
  }
  if (text[0] != '<' && text[0] != '=' && bytes != 1) return {};
  switch (text[1]) {
    case 'b':
      return bytes == 1 ? Type(kBool, 1) : DataType{};
    case 'i':
      return Type(kInt, bytes);
    case 'u':
      return Type(kUint, bytes);
    case 'f':
      return Type(kFloat, bytes);
    case 'c':
      return Type(kComplex, bytes);
    default:
      return {};
  }
}

// Converts strides from bytes to elements; false with a BufferError if an element would start inside another. Strides
// of dimensions of size 1, and of arrays without elements, are ignored.
bool ToElements(const std::vector<int64_t>& shape, int64_t itemsize, std::vector<int64_t>& strides) {
  bool empty = false;
  for (const int64_t dimension : shape) empty |= dimension == 0;
  for (size_t i = 0; i < strides.size() && i < shape.size(); ++i) {
    if (!empty && shape[i] != 1 && strides[i] % itemsize != 0) {
      Refuse("a stride of " + std::to_string(strides[i]) + " bytes is no multiple of the " + std::to_string(itemsize) +
             " bytes of an element");
      return false;
    }
    strides[i] /= itemsize;
  }
  return true;
}

bool IntsOf(PyObject* tuple, const char* name, std::vector<int64_t>& out) {
  if (!PyTuple_Check(tuple)) {
    PyErr_Format(PyExc_BufferError, "%s of the array interface must be a tuple of ints", name);
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const long long value = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    if (value == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Format(PyExc_BufferError, "%s of the array interface must be a tuple of 64-bit ints", name);
      return false;
    }
    out.push_back(value);
  }
  return true;
}

PyObject* FromBuffer(PyObject* object, bool writable, bool read_only) {
  auto held = HeldBuffer::Of(object, writable ? PyBUF_FULL : PyBUF_FULL_RO);
  if (held == nullptr) return nullptr;
  const Py_buffer& buffer = held->get();
  if (buffer.suboffsets != nullptr)
    for (int i = 0; i < buffer.ndim; ++i)
      if (buffer.suboffsets[i] >= 0) return Refuse("a buffer with suboffsets is no array");
  const DataType type = TypeOfFormat(buffer.format, buffer.itemsize);
  if (type.bits == 0) return RefuseFormat(buffer.format == nullptr ? "B" : buffer.format, buffer.itemsize);
  std::vector<int64_t> shape, strides;
  if (buffer.ndim > 0) shape.assign(buffer.shape, buffer.shape + buffer.ndim);
  if (buffer.ndim > 0 && buffer.strides != nullptr) strides.assign(buffer.strides, buffer.strides + buffer.ndim);
  if (!ToElements(shape, buffer.itemsize, strides)) return nullptr;
  return FromDescription(Describe(buffer.buf, type, std::move(shape), std::move(strides), {},
                                  read_only || buffer.readonly != 0, std::move(held)));
}

// The content of an array interface, in our types.
struct Interface {
  DataType type;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

// The values are borrowed; nullptr if absent or None.
PyObject* Get(PyObject* interface, const char* key) {
  PyObject* value = PyDict_GetItemString(interface, key);
  return value == Py_None ? nullptr : value;
}

// The version of the interface, -1 if it is missing.
long VersionOf(PyObject* interface) {
  PyObject* version = Get(interface, "version");
  const long number = version != nullptr && PyLong_Check(version) ? PyLong_AsLong(version) : -1;
  PyErr_Clear();
  return number;
}

bool Read(PyObject* interface, Interface& out) {
  if (Get(interface, "mask") != nullptr) return Refuse("an array with a mask would lose it") != nullptr;
  PyObject* typestr = Get(interface, "typestr");
  const char* text = typestr != nullptr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8(typestr) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    return Refuse("the array interface has no typestr") != nullptr;
  }
  out.type = TypeOfTypestr(text);
  if (out.type.bits == 0) return Refuse(std::string("DLPack has no dtype for typestr '") + text + "'") != nullptr;
  PyObject* shape = Get(interface, "shape");
  if (shape == nullptr) return Refuse("the array interface has no shape") != nullptr;
  if (!IntsOf(shape, "shape", out.shape)) return false;
  PyObject* strides = Get(interface, "strides");
  if (strides != nullptr && !IntsOf(strides, "strides", out.strides)) return false;
  if (!out.strides.empty() && out.strides.size() != out.shape.size())
    return Refuse("the array interface has strides of another rank than its shape") != nullptr;
  return ToElements(out.shape, out.type.bits / 8, out.strides);
}

// data is (address, read-only).
PyObject* FromAddress(PyObject* interface, PyObject* data, Interface array, PyObject* owner,
                      std::optional<Device> (*device_of)(const void*)) {
  if (!PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2 || !PyLong_Check(PyTuple_GET_ITEM(data, 0)))
    return Refuse("data of the array interface must be (address, read_only)");
  void* address = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
  if (address == nullptr && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return Refuse("data of the array interface is no address");
  }
  const int read_only = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
  if (read_only < 0) return nullptr;
  // The dictionary may own the bytes: a NumPy scalar describes an array without another reference.
  const Ref both(PyTuple_Pack(2, interface, owner));
  if (both == nullptr) return nullptr;
  const auto device = device_of(address);
  if (!device.has_value()) return nullptr;
  return FromDescription(Describe(address, array.type, std::move(array.shape), std::move(array.strides), *device,
                                  read_only != 0, OwnerOf(both.get())));
}

std::optional<Device> Host(const void* /*address*/) { return Device{}; }

// The GPU of an address; nothing with a Python error. Arrays without elements have none: returns any GPU.
std::optional<Device> Gpu(const void* address) {
  if (address == nullptr) return Device{kDeviceCuda, 0, {}};
  auto gpu = GpuOf(address);
  if (gpu.ok()) return *std::move(gpu);
  RaiseBuffer(gpu.status());
  return std::nullopt;
}

// Reads the stream that the consumer must order after; false with a Python error. Versions before 3 have no stream.
bool StreamOf(PyObject* interface, long version, std::optional<uintptr_t>& stream) {
  if (version < 3) stream = kLegacyStream;
  PyObject* value = version < 3 ? nullptr : Get(interface, "stream");
  if (value == nullptr) return true;
  const unsigned long long number = PyLong_Check(value) ? PyLong_AsUnsignedLongLong(value) : 0;
  if (number != 0 && PyErr_Occurred() == nullptr) {
    stream = StreamForAnyThread(static_cast<uintptr_t>(number));
    return true;
  }
  PyErr_Clear();
  PyErr_Format(PyExc_BufferError, "stream of the array interface must be None, 1, 2 or the address of one, not %R",
               value);
  return false;
}

// `data` is an object with the buffer protocol, and the array must lie inside it.
PyObject* FromBufferObject(PyObject* interface, PyObject* data, Interface array) {
  ArraySpec spec{array.type, {}, array.shape, array.strides, 0};
  if (PyObject* offset = Get(interface, "offset"); offset != nullptr) {
    spec.offset = PyLong_AsUnsignedLongLong(offset);
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return Refuse("offset of the array interface is no size");
    }
  }
  auto held = HeldBuffer::Of(data, PyBUF_SIMPLE);
  if (held == nullptr) return nullptr;
  const Py_buffer& buffer = held->get();
  if (const Status inside = spec.CheckInside(static_cast<uint64_t>(buffer.len)); !inside.ok())
    return RaiseBuffer(inside);
  return FromDescription(Describe(static_cast<std::byte*>(buffer.buf) + spec.offset, array.type, std::move(array.shape),
                                  std::move(array.strides), {}, buffer.readonly != 0, std::move(held)));
}

}  // namespace

PyObject* WrapBuffer(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  const bool known =
      named == 0 || (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "read_only") == 0);
  if (count != 1 || !known) {
    PyErr_SetString(PyExc_TypeError, "wrap_buffer() takes one object, and read_only=");
    return nullptr;
  }
  PyObject* const read_only = named == 0 ? Py_None : arguments[1];
  return Guarded(static_cast<PyObject*>(nullptr),
                 [=] { return FromBuffer(arguments[0], read_only == Py_False, read_only == Py_True); });
}

PyObject* WrapConstant(PyObject*, PyObject* object) {
  return Guarded(static_cast<PyObject*>(nullptr), [object]() -> PyObject* {
    Ref view(FromBuffer(object, false, true));
    if (view == nullptr) return nullptr;
    reinterpret_cast<ViewObject*>(view.get())->view.constant = true;
    return view.release();
  });
}

PyObject* WrapArrayInterface(PyObject*, PyObject* arguments) {
  PyObject* interface = nullptr;
  PyObject* owner = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!O:wrap_array_interface", &PyDict_Type, &interface, &owner)) return nullptr;
  return Guarded(static_cast<PyObject*>(nullptr), [&]() -> PyObject* {
    if (VersionOf(interface) != 3) return Refuse("only versions 2 and 3 of the array interface are understood");
    Interface array;
    if (!Read(interface, array)) return nullptr;
    PyObject* data = Get(interface, "data");
    if (data == nullptr && !PyObject_CheckBuffer(owner))
      return Refuse(std::string("the array interface of ") + Py_TYPE(owner)->tp_name +
                    " has no data, and the object no buffer in its place");
    if (data == nullptr) data = owner;  // the object itself has the bytes
    if (PyTuple_Check(data)) return FromAddress(interface, data, std::move(array), owner, Host);
    return FromBufferObject(interface, data, std::move(array));
  });
}

PyObject* WrapCudaArrayInterface(PyObject*, PyObject* arguments) {
  PyObject* interface = nullptr;
  PyObject* owner = nullptr;
  if (!PyArg_ParseTuple(arguments, "O!O:wrap_cuda_array_interface", &PyDict_Type, &interface, &owner)) return nullptr;
  return Guarded(static_cast<PyObject*>(nullptr), [&]() -> PyObject* {
    const long version = VersionOf(interface);
    if (version != 2 && version != 3) return Refuse("only versions 2 and 3 of this array interface are understood");
    Interface array;
    std::optional<uintptr_t> stream;
    if (!Read(interface, array) || !StreamOf(interface, version, stream)) return nullptr;
    PyObject* data = Get(interface, "data");
    if (data == nullptr) return Refuse("the array interface has no data");
    Ref view(FromAddress(interface, data, std::move(array), owner, Gpu));
    if (view == nullptr) return nullptr;
    reinterpret_cast<ViewObject*>(view.get())->view.stream = stream;
    return view.release();
  });
}

PyObject* Gpus(PyObject*, PyObject*) {
  return Guarded(static_cast<PyObject*>(nullptr), []() -> PyObject* {
    const auto gpus = VisibleGpus();
    Ref list(PyList_New(0));
    if (list == nullptr || !gpus.ok()) return list.release();  // without a driver there is no GPU
    for (const Device& gpu : *gpus) {
      const Ref uuid(PyUnicode_FromString(gpu.uuid.c_str()));
      if (uuid == nullptr || PyList_Append(list.get(), uuid.get()) < 0) return nullptr;
    }
    return list.release();
  });
}

PyObject* GpuReaches(PyObject*, PyObject* numbers) {
  return Guarded(static_cast<PyObject*>(nullptr), [&]() -> PyObject* {
    int from = 0;
    int to = 0;
    if (!PyArg_ParseTuple(numbers, "ii:gpu_reaches", &from, &to)) return nullptr;
    return PyBool_FromLong(CopiesDirectly(from, to));
  });
}

}  // namespace arraybridge::python
