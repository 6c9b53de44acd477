// SPDX-License-Identifier: Apache-2.0
// View.__arrow_c_array__ and __arrow_c_device_array__: one-dimensional arrays of numbers as Arrow's structures. Arrow's
// arrays are immutable, so a share's own memory is given to them.
#include <array>
#include <memory>

#include "python/bindings/python_owner.h"
#include "python/bindings/tables/arrow_structures.h"
#include "python/bindings/view.h"

namespace arraybridge::python {
namespace {

constexpr int32_t kArrowDeviceCpu = 1;  // these two, and the numbers of devices, are DLPack's
constexpr int32_t kArrowDeviceCuda = 2;
static_assert(kArrowDeviceCpu == kDeviceCpu && kArrowDeviceCuda == kDeviceCuda);

// DLPack: signed, unsigned, floating-point. Arrow's booleans are single bits; the others it lacks.
const char* FormatOf(DataType type) {
  constexpr std::array<std::array<const char*, 4>, 3> kFormats = {
      {{"c", "s", "i", "l"}, {"C", "S", "I", "L"}, {nullptr, "e", "f", "g"}}};
  if (type.lanes != 1 || type.code >= kFormats.size()) return nullptr;
  for (size_t width = 0; width < 4; ++width)
    if (type.bits == 8 << width) return kFormats[type.code][width];
  return nullptr;
}

// The array keeps it until its consumer releases the array.
struct Kept {
  View view;
  std::array<const void*, 2> buffers;  // validity, of which there is none, and values
};

void ReleaseSchema(ArrowSchema* schema) { schema->release = nullptr; }

void ReleaseArray(ArrowArray* array) {
  delete static_cast<Kept*>(array->private_data);
  array->release = nullptr;
}

ArrowArray ArrayOf(const View& view) {
  auto kept = std::make_unique<Kept>(Kept{view, {nullptr, view.data}});
  ArrowArray array{};
  array.length = static_cast<int64_t>(view.elements());
  array.n_buffers = 2;
  array.buffers = kept->buffers.data();
  array.release = ReleaseArray;
  array.private_data = kept.release();
  return array;
}

// Arrow's format of the array; nullptr with a BufferError.
const char* Check(const View& view) {
  if (view.shape.size() != 1) {
    PyErr_Format(PyExc_BufferError, "an Arrow array has one dimension, not %zu", view.shape.size());
    return nullptr;
  }
  if (!view.compact()) {
    PyErr_SetString(PyExc_BufferError, "an Arrow array has no strides: copy it first");
    return nullptr;
  }
  const char* const format = DlpackSays(view) ? FormatOf(view.type) : nullptr;
  if (format == nullptr) PyErr_Format(PyExc_BufferError, "Arrow has no arrays of %.100s", ShownDtype(view).c_str());
  return format;
}

PyObject* Export(PyObject* self, PyObject* arguments, PyObject* keywords, bool with_device) {
  // A schema that the consumer would like is a wish; it casts what it gets. Later keywords are to be ignored.
  if (PyTuple_GET_SIZE(arguments) > 1) {
    PyErr_SetString(PyExc_TypeError, "at most one argument: requested_schema");
    return nullptr;
  }
  (void)keywords;
  const View& view = reinterpret_cast<ViewObject*>(self)->view;
  const char* const format = Check(view);
  if (format == nullptr) return nullptr;
  if (!with_device && view.device.type != kDeviceCpu) {
    PyErr_SetString(PyExc_BufferError, "memory of a GPU: use __arrow_c_device_array__");
    return nullptr;
  }
  if (!WaitForFence(view)) return nullptr;
  Held<ArrowSchema> schema(new ArrowSchema{});
  schema->format = format;
  schema->name = "";
  schema->release = ReleaseSchema;
  const Ref described = CapsuleOf(std::move(schema), "arrow_schema");
  if (described == nullptr) return nullptr;
  Ref array;
  if (with_device) {
    Held<ArrowDeviceArray> made(new ArrowDeviceArray{});
    made->device_type = view.device.type;
    made->device_id = view.device.type == kDeviceCpu ? -1 : view.device.id;
    made->array = ArrayOf(view);
    array = CapsuleOf(std::move(made), "arrow_device_array");
  } else {
    Held<ArrowArray> made(new ArrowArray{});
    *made = ArrayOf(view);
    array = CapsuleOf(std::move(made), "arrow_array");
  }
  return array == nullptr ? nullptr : PyTuple_Pack(2, described.get(), array.get());
}

}  // namespace

PyObject* ViewArrowArray(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return Guarded(static_cast<PyObject*>(nullptr), [=] { return Export(self, arguments, keywords, false); });
}

PyObject* ViewArrowDeviceArray(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return Guarded(static_cast<PyObject*>(nullptr), [=] { return Export(self, arguments, keywords, true); });
}

}  // namespace arraybridge::python
