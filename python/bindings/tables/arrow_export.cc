// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/tables/arrow_export.h"

#include <cerrno>
#include <new>

namespace arraybridge::tables {

using python::ArrowArray;
using python::ArrowArrayStream;
using python::ArrowSchema;

namespace {

// For buffers without elements: consumers read the first offset of an empty array.
alignas(64) constexpr int64_t kZeros[8] = {};

using Owner = std::shared_ptr<const Parts>;

// The private data of a structure: what keeps the memory, and the structures of its children.
template <class Structure>
struct Kept {
  Owner parts;
  std::vector<Structure> children;
  std::vector<Structure*> pointers;
  Structure dictionary{};
  std::vector<const void*> buffers{};
  std::vector<int64_t> view_sizes{};  // of the data of a binary view, which is the last buffer of such an array
};

template <class Structure>
void ReleaseKept(Structure* structure) {
  auto* const kept = static_cast<Kept<Structure>*>(structure->private_data);
  for (Structure& child : kept->children) Release(child);
  Release(kept->dictionary);
  delete kept;
  structure->release = nullptr;
}

// The parts that both structures have.
template <class Structure>
Kept<Structure>* Begin(const Node& node, const Owner& parts, Structure* structure) {
  auto* const kept = new Kept<Structure>{parts, std::vector<Structure>(node.children.size()), {}};
  *structure = {};
  structure->private_data = kept;
  structure->release = ReleaseKept<Structure>;
  kept->pointers.reserve(kept->children.size());
  for (Structure& child : kept->children) kept->pointers.push_back(&child);
  for (size_t index = 0; index < node.children.size(); ++index)
    Export(node.children[index], parts, &kept->children[index]);
  structure->n_children = static_cast<int64_t>(kept->pointers.size());
  structure->children = kept->pointers.data();
  if (node.dictionary != nullptr) {
    Export(*node.dictionary, parts, &kept->dictionary);
    structure->dictionary = &kept->dictionary;
  }
  return kept;
}

const void* AddressOf(const Parts& parts, int64_t number) {
  if (number == kNone) return nullptr;
  const void* const data = parts.buffers[static_cast<size_t>(number)].data;
  return data == nullptr ? kZeros : data;
}

void AddViewSizes(const Node& node, Kept<ArrowArray>& kept) {
  for (size_t index = 2; index < node.buffers.size(); ++index)
    kept.view_sizes.push_back(
        static_cast<int64_t>(kept.parts->buffers[static_cast<size_t>(node.buffers[index])].elements));
  kept.buffers.push_back(kept.view_sizes.empty() ? kZeros : kept.view_sizes.data());
}

// The private data of a stream.
struct Streamed {
  Owner parts;
  const Node& node;
  bool ended = false;
};

// 0, or the error of a stream's function.
template <class Structure>
int TryExport(const Streamed& streamed, Structure* structure) {
  *structure = {};
  try {
    Export(streamed.node, streamed.parts, structure);
  } catch (const std::bad_alloc&) {
    Release(*structure);
    return ENOMEM;
  }
  return 0;
}

int GetSchema(ArrowArrayStream* stream, ArrowSchema* schema) {
  return TryExport(*static_cast<Streamed*>(stream->private_data), schema);
}

int GetNext(ArrowArrayStream* stream, ArrowArray* array) {
  auto* const streamed = static_cast<Streamed*>(stream->private_data);
  *array = {};
  if (streamed->ended) return 0;
  const int failed = TryExport(*streamed, array);
  streamed->ended = failed == 0;
  return failed;
}

const char* LastError(ArrowArrayStream*) { return nullptr; }

void ReleaseStream(ArrowArrayStream* stream) {
  delete static_cast<Streamed*>(stream->private_data);
  stream->release = nullptr;
}

}  // namespace

void Export(const Node& node, const Owner& parts, ArrowSchema* schema) {
  Begin(node, parts, schema);
  schema->format = node.format.c_str();
  schema->name = node.name.c_str();
  schema->metadata = node.metadata.empty() ? nullptr : node.metadata.data();
  schema->flags = node.flags;
}

void Export(const Node& node, const Owner& parts, ArrowArray* array) {
  Kept<ArrowArray>* const kept = Begin(node, parts, array);
  kept->buffers.reserve(node.buffers.size() + 1);
  for (const int64_t number : node.buffers) kept->buffers.push_back(AddressOf(*parts, number));
  if (node.format == "vu" || node.format == "vz") AddViewSizes(node, *kept);
  array->length = node.length;
  array->null_count = node.nulls;
  array->n_buffers = static_cast<int64_t>(kept->buffers.size());
  array->buffers = kept->buffers.data();
}

void Export(const Node& node, const Owner& parts, ArrowArrayStream* stream) {
  stream->private_data = new Streamed{parts, node};
  stream->get_schema = GetSchema;
  stream->get_next = GetNext;
  stream->get_last_error = LastError;
  stream->release = ReleaseStream;
}

}  // namespace arraybridge::tables
