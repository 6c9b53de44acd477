// SPDX-License-Identifier: Apache-2.0
// Tables of a hostile maker: any description beside any buffers is refused, or describes arrays whose elements lie in
// the buffers. The walk after the check reads the same bytes as a library of Arrow.
//
// The input: a byte with the number of buffers, then their types (a byte) and sizes (a byte), their bytes, and the
// text.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "python/bindings/tables/table_check.h"
#include "python/bindings/tables/table_form.h"
#include "python/bindings/tables/table_node.h"
#include "tests/fuzz/input.h"

namespace arraybridge::tables {
namespace {

constexpr size_t kBuffersMax = 8;
constexpr DataType kTypes[] = {{1, 8}, {0, 8}, {0, 16}, {0, 32}, {0, 64}, {2, 32}, {2, 64}, {1, 32}};

volatile uint64_t sum = 0;  // so that no read is removed

// Reads `bytes` from the start of a buffer, which AddressSanitizer has the bounds of.
void Touch(const Buffer& buffer, uint64_t bytes) {
  const auto* const data = static_cast<const uint8_t*>(buffer.data);
  for (uint64_t at = 0; at < bytes; ++at) sum = sum + data[at];
}

uint64_t BytesOf(const Node& node, const Form& form, size_t index) {
  const auto length = static_cast<uint64_t>(node.length);
  const uint64_t width = form.type.bits / 8;
  if (index == 0 && form.validity()) return (length + 7) / 8;
  switch (form.kind) {
    case Kind::kBits:
      return (length + 7) / 8;
    case Kind::kFixed:
      return length * width * static_cast<uint64_t>(form.width);
    case Kind::kText:
      return index == 1 ? (length + 1) * width : 0;
    case Kind::kList:
      return (length + 1) * width;
    case Kind::kView:
      return index == 1 ? length * 16 : 0;
    case Kind::kListView:
      return length * width;
    case Kind::kSparseUnion:
    case Kind::kDenseUnion:
      return index == 0 ? length : length * 4;
    default:
      return 0;
  }
}

void Walk(const Node& node, const std::vector<Buffer>& buffers, int depth) {
  AB_CHECK(depth <= kDepthMax);
  const auto form = FormOf(node.format);
  AB_CHECK(form.has_value());
  AB_CHECK(node.nulls <= node.length && node.name.find('\0') == std::string::npos);
  for (size_t index = 0; index < node.buffers.size(); ++index) {
    const int64_t number = node.buffers[index];
    if (number == kNone) continue;
    AB_CHECK(static_cast<size_t>(number) < buffers.size());
    Touch(buffers[static_cast<size_t>(number)], BytesOf(node, *form, index));
  }
  for (const Node& child : node.children) {
    if (form->kind == Kind::kStruct || form->kind == Kind::kSparseUnion) AB_CHECK(child.length == node.length);
    Walk(child, buffers, depth + 1);
  }
  if (node.dictionary != nullptr) Walk(*node.dictionary, buffers, depth + 1);
}

// Copies of exactly their size, so that a read beyond one is found.
struct Memory {
  std::vector<std::unique_ptr<uint8_t[]>> owned;
  std::vector<Buffer> buffers;

  void Add(Input& input) {
    const DataType type = kTypes[input.Take<uint8_t>() % std::size(kTypes)];
    const std::string_view bytes = input.TakeBytes(input.Take<uint8_t>());
    const size_t whole = bytes.size() / (type.bits / 8) * (type.bits / 8);
    owned.push_back(std::make_unique<uint8_t[]>(whole));
    std::memcpy(owned.back().get(), bytes.data(), whole);
    buffers.push_back({whole == 0 ? nullptr : owned.back().get(), whole / (type.bits / 8), type, true});
  }
};

}  // namespace
}  // namespace arraybridge::tables

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arraybridge;
  Input input(data, size);
  tables::Memory memory;
  for (size_t left = input.Take<uint8_t>() % (tables::kBuffersMax + 1); left > 0; --left) memory.Add(input);
  const auto description = tables::ReadDescription(input.TakeRest());
  if (!description.ok()) {
    AB_CHECK(description.status().code() == Code::kInvalidArgument);
    return 0;
  }
  AB_CHECK(description->first >= 0 && description->count >= 0);
  if (tables::Check(description->node, memory.buffers).ok()) tables::Walk(description->node, memory.buffers, 0);
  return 0;
}
