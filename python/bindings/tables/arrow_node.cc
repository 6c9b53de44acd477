// SPDX-License-Identifier: Apache-2.0
// A Node is an Arrow array with its schema, in memory of the broker: what the C structures of a table point into. It is
// immutable, and each structure shares it, so that a consumer may keep one column and release the others.
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "python/bindings/tables/arrow_structures.h"
#include "python/bindings/view.h"

namespace arraybridge::python {
namespace {

// For buffers without elements: consumers read the first offset of an empty array.
alignas(64) constexpr int64_t kZeros[8] = {};

struct Node {
  std::string format, name, metadata;
  int64_t flags = 0, length = 0, null_count = 0;
  std::vector<const void*> buffers;
  std::vector<std::shared_ptr<const void>> owners;
  std::vector<int64_t> view_sizes;  // of the data of a binary view, which is the last buffer of such an array
  std::vector<std::shared_ptr<const Node>> children;
  std::shared_ptr<const Node> dictionary;
};
using Shared = std::shared_ptr<const Node>;

// The private data of a structure: the node, and the structures of its children.
template <class Structure>
struct Kept {
  Shared node;
  std::vector<Structure> children;
  std::vector<Structure*> pointers;
  Structure dictionary{};
};

template <class Structure>
void ReleaseKept(Structure* structure) {
  auto* const kept = static_cast<Kept<Structure>*>(structure->private_data);
  for (Structure& child : kept->children) Release(child);
  Release(kept->dictionary);
  delete kept;
  structure->release = nullptr;
}

void Export(const Shared& node, ArrowSchema* schema);
void Export(const Shared& node, ArrowArray* array);

// The parts that both structures have.
template <class Structure>
Kept<Structure>* Begin(const Shared& node, Structure* structure) {
  auto* const kept = new Kept<Structure>{node, std::vector<Structure>(node->children.size()), {}, {}};
  *structure = {};
  structure->private_data = kept;
  structure->release = ReleaseKept<Structure>;
  for (Structure& child : kept->children) kept->pointers.push_back(&child);
  for (size_t index = 0; index < node->children.size(); ++index) Export(node->children[index], &kept->children[index]);
  structure->n_children = static_cast<int64_t>(kept->pointers.size());
  structure->children = kept->pointers.data();
  if (node->dictionary != nullptr) {
    Export(node->dictionary, &kept->dictionary);
    structure->dictionary = &kept->dictionary;
  }
  return kept;
}

void Export(const Shared& node, ArrowSchema* schema) {
  Begin(node, schema);
  schema->format = node->format.c_str();
  schema->name = node->name.c_str();
  schema->metadata = node->metadata.empty() ? nullptr : node->metadata.data();
  schema->flags = node->flags;
}

void Export(const Shared& node, ArrowArray* array) {
  Begin(node, array);
  array->length = node->length;
  array->null_count = node->null_count;
  array->n_buffers = static_cast<int64_t>(node->buffers.size());
  array->buffers = const_cast<const void**>(node->buffers.data());
}

// The private data of a stream.
struct Streamed {
  Shared node;
  bool ended = false;
};

// 0, or the error of a stream's function.
template <class Structure>
int TryExport(const Shared& node, Structure* structure) {
  *structure = {};
  try {
    Export(node, structure);
  } catch (const std::bad_alloc&) {
    Release(*structure);
    return ENOMEM;
  }
  return 0;
}

int GetSchema(ArrowArrayStream* stream, ArrowSchema* schema) {
  return TryExport(static_cast<Streamed*>(stream->private_data)->node, schema);
}

int GetNext(ArrowArrayStream* stream, ArrowArray* array) {
  auto* const streamed = static_cast<Streamed*>(stream->private_data);
  *array = {};
  if (streamed->ended) return 0;
  const int failed = TryExport(streamed->node, array);
  streamed->ended = failed == 0;
  return failed;
}

const char* LastError(ArrowArrayStream*) { return nullptr; }

void ReleaseStream(ArrowArrayStream* stream) {
  delete static_cast<Streamed*>(stream->private_data);
  stream->release = nullptr;
}

std::optional<std::string_view> TextOf(PyObject* object) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(object, &data, &size) < 0) return std::nullopt;
  return std::string_view(data, static_cast<size_t>(size));
}

// Its size in bytes; nothing with a Python error.
std::optional<int64_t> ReadBuffer(PyObject* buffer, Node& node) {
  if (buffer == Py_None) return node.buffers.push_back(nullptr), 0;
  const View* const view = ViewOf(buffer);
  if (view == nullptr) return std::nullopt;
  if (view->device.type != kDeviceCpu || !view->compact())
    return PyErr_SetString(PyExc_ValueError, "a buffer of Arrow lies in host memory, without strides"), std::nullopt;
  node.buffers.push_back(view->data == nullptr ? kZeros : view->data);
  node.owners.push_back(view->owner);
  return static_cast<int64_t>(view->nbytes());
}

bool ReadBuffers(PyObject* buffers, Node& node) {
  if (!PyTuple_Check(buffers)) return PyErr_SetString(PyExc_ValueError, "buffers are a tuple of Views"), false;
  const bool binary_view = node.format == "vu" || node.format == "vz";
  for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(buffers); ++index) {
    const auto nbytes = ReadBuffer(PyTuple_GET_ITEM(buffers, index), node);
    if (!nbytes) return false;
    if (binary_view && index >= 2) node.view_sizes.push_back(*nbytes);
  }
  if (binary_view) node.buffers.push_back(node.view_sizes.empty() ? kZeros : node.view_sizes.data());
  return true;
}

// Null with a Python error. The caller limits the depth.
Shared NodeOf(PyObject* object) {
  PyObject *format = nullptr, *name = nullptr, *metadata = nullptr, *buffers = nullptr, *children = nullptr,
           *dictionary = nullptr;
  long long flags = 0, length = 0, null_count = 0;
  if (!PyTuple_Check(object)) return PyErr_SetString(PyExc_ValueError, "a node is a tuple"), nullptr;
  if (!PyArg_ParseTuple(object, "OOOLLLOOO", &format, &name, &metadata, &flags, &length, &null_count, &buffers,
                        &children, &dictionary))
    return nullptr;
  const auto node = std::make_shared<Node>();
  const auto texts = {std::pair{format, &node->format}, {name, &node->name}, {metadata, &node->metadata}};
  for (const auto& [source, target] : texts) {
    const auto text = TextOf(source);
    if (!text) return nullptr;
    target->assign(*text);
  }
  node->flags = flags;
  node->length = length;
  node->null_count = null_count;
  if (!ReadBuffers(buffers, *node)) return nullptr;
  if (!PyTuple_Check(children)) return PyErr_SetString(PyExc_ValueError, "children are a tuple of nodes"), nullptr;
  for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(children); ++index) {
    Shared child = NodeOf(PyTuple_GET_ITEM(children, index));
    if (child == nullptr) return nullptr;
    node->children.push_back(std::move(child));
  }
  if (dictionary != Py_None && (node->dictionary = NodeOf(dictionary)) == nullptr) return nullptr;
  return node;
}

}  // namespace

PyObject* ArrowArrayOf(PyObject*, PyObject* object) {
  return Guarded(static_cast<PyObject*>(nullptr), [object]() -> PyObject* {
    const Shared node = NodeOf(object);
    if (node == nullptr) return nullptr;
    Held<ArrowSchema> schema(new ArrowSchema{});
    Export(node, schema.get());
    const Ref described = CapsuleOf(std::move(schema), "arrow_schema");
    if (described == nullptr) return nullptr;
    Held<ArrowArray> array(new ArrowArray{});
    Export(node, array.get());
    const Ref capsule = CapsuleOf(std::move(array), "arrow_array");
    return capsule == nullptr ? nullptr : PyTuple_Pack(2, described.get(), capsule.get());
  });
}

PyObject* ArrowStreamOf(PyObject*, PyObject* object) {
  return Guarded(static_cast<PyObject*>(nullptr), [object]() -> PyObject* {
    const Shared node = NodeOf(object);
    if (node == nullptr) return nullptr;
    Held<ArrowArrayStream> stream(new ArrowArrayStream{});
    stream->private_data = new Streamed{node};
    stream->get_schema = GetSchema;
    stream->get_next = GetNext;
    stream->get_last_error = LastError;
    stream->release = ReleaseStream;
    return CapsuleOf(std::move(stream), "arrow_array_stream").release();
  });
}

}  // namespace arraybridge::python
