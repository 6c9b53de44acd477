// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/tables/table_check.h"

#include <cstring>
#include <iterator>
#include <optional>
#include <string>

#include "python/bindings/tables/table_form.h"

namespace arraybridge::tables {
namespace {

constexpr size_t kNameMax = 64, kPathMax = 200;  // bytes in a message

using Buffers = std::span<const Buffer>;

// A Column is an array while it is checked: its description, its place in the table, and its buffers.
struct Column {
  const Node& node;
  const Column* above;
  std::string_view name;
  Buffers buffers;
  Form form{};

  std::string Path() const {
    std::string path = above == nullptr ? std::string() : above->Path();
    if (above != nullptr) path += path.empty() ? name : "." + std::string(name);
    return path;
  }

  template <class... Parts>
  Status Refused(const Parts&... parts) const {
    const std::string path = Path();
    const std::string shown = path.empty() ? "the table" : path.substr(0, kPathMax);
    return InvalidArgument("the share's table is invalid: column '", shown, "': ", parts..., ": put the table again");
  }

  // Nullptr: the array has no such buffer.
  const Buffer* At(size_t index) const {
    const int64_t number = node.buffers[index];
    return number == kNone ? nullptr : &buffers[static_cast<size_t>(number)];
  }

  // OK if a buffer has this type and at least `count` elements. `count`: nothing after an overflow.
  Status Has(size_t index, DataType type, std::optional<int64_t> count, std::string_view what) const {
    const Buffer* const buffer = At(index);
    if (buffer == nullptr) return Refused("it has no ", what);
    if (!buffer->plain || buffer->type != type)
      return Refused("its ", what, " are no ", NameOf(type), " in host memory");
    if (count && buffer->elements >= static_cast<uint64_t>(*count)) return Ok();
    const std::string needed = count ? std::to_string(*count) : "more than 2^63";
    return Refused("its ", what, " have ", buffer->elements, " elements, and its length needs ", needed);
  }

  // An element of int16, int32 or int64. REQUIRES: `Has` found it.
  int64_t Integer(size_t index, int64_t element) const {
    const auto* const data = static_cast<const char*>(At(index)->data);
    const auto read = [&]<class Value>(Value value) -> int64_t {
      std::memcpy(&value, data + static_cast<size_t>(element) * sizeof value, sizeof value);
      return value;
    };
    const uint8_t bits = At(index)->type.bits;
    return bits == 16 ? read(int16_t{}) : bits == 32 ? read(int32_t{}) : read(int64_t{});
  }
};

std::optional<int64_t> Product(int64_t one, int64_t other) {
  int64_t product = 0;
  return __builtin_mul_overflow(one, other, &product) ? std::nullopt : std::optional(product);
}

int64_t BytesFor(int64_t bits) { return bits / 8 + (bits % 8 != 0); }

// Finds the form of a column. INVALID_ARGUMENT: there is none, or it names buffers that the share lacks.
Status Identify(Column& column) {
  const auto form = FormOf(column.node.format);
  if (!form) return column.Refused("its type '", column.node.format.substr(0, kNameMax), "' is unknown");
  column.form = *form;
  for (const int64_t number : column.node.buffers)
    if (number != kNone && static_cast<uint64_t>(number) >= column.buffers.size())
      return column.Refused("it names an array that the share lacks");
  return Ok();
}

Status CheckCounts(const Column& column) {
  const size_t buffers = column.node.buffers.size(), wanted = column.form.buffers();
  if (buffers < wanted || (buffers > wanted && column.form.kind != Kind::kView))
    return column.Refused("it has ", buffers, " buffers, not ", wanted);
  const auto children = static_cast<int64_t>(column.node.children.size());
  if (column.form.children == children || column.form.children == -1) return Ok();
  return column.Refused("it has ", children, " children, not ", column.form.children);
}

Status CheckNulls(const Column& column) {
  const Node& node = column.node;
  const bool validity = column.form.validity();
  if (node.nulls > (validity || column.form.kind == Kind::kNull ? node.length : 0))
    return column.Refused("it has more nulls than elements");
  if (!validity) return Ok();
  if (column.At(0) != nullptr) return column.Has(0, kUint8, BytesFor(node.length), "validity");
  return node.nulls == 0 ? Ok() : column.Refused("it has nulls and no validity");
}

// The first and the last offset.
Status CheckOffsets(const Column& column, uint64_t limit) {
  const int64_t length = column.node.length;
  AB_RETURN_IF_ERROR(column.Has(1, column.form.type, length + 1, "offsets"));
  const int64_t first = column.Integer(1, 0), last = column.Integer(1, length);
  if (0 <= first && first <= last && static_cast<uint64_t>(last) <= limit) return Ok();
  return column.Refused("its offsets go from ", first, " to ", last, ", and there are ", limit, " elements");
}

Status CheckText(const Column& column) {
  Status failed = column.Has(2, kUint8, 0, "bytes");
  return failed.ok() ? CheckOffsets(column, column.At(2)->elements) : std::move(failed);
}

Status CheckView(const Column& column) {
  Status failed = column.Has(1, kUint8, Product(16, column.node.length), "views");
  for (size_t index = 2; failed.ok() && index < column.node.buffers.size(); ++index)
    failed = column.Has(index, kUint8, 0, "bytes");
  return failed;
}

Status CheckListView(const Column& column) {
  Status failed = column.Has(1, column.form.type, column.node.length, "offsets");
  return failed.ok() ? column.Has(2, column.form.type, column.node.length, "sizes") : std::move(failed);
}

Status CheckFixedList(const Column& column) {
  const auto needed = Product(column.node.length, column.form.per_row);
  const int64_t there = column.node.children[0].length;
  if (needed == there) return Ok();
  const std::string shown = needed ? std::to_string(*needed) : "more than 2^63";
  return column.Refused("its lists have together ", there, " elements, and its length needs ", shown);
}

Status CheckStruct(const Column& column) {
  const int64_t length = column.node.length;
  for (const Node& child : column.node.children)
    if (child.length != length)
      return column.Refused("'", child.name.substr(0, kNameMax), "' has ", child.length, " elements, not ", length);
  return Ok();
}

Status CheckUnion(const Column& column) {
  Status failed = column.Has(0, kInt8, column.node.length, "type ids");
  if (!failed.ok()) return failed;
  if (column.form.kind == Kind::kSparseUnion) return CheckStruct(column);
  return column.Has(1, kInt32, column.node.length, "offsets");
}

Status IdentifyRunEnds(Column& ends) {
  AB_RETURN_IF_ERROR(Identify(ends));
  const std::string& format = ends.node.format;
  if (format != "s" && format != "i" && format != "l") return ends.Refused("its type is not int16, int32 or int64");
  if (ends.node.nulls != 0) return ends.Refused("it has nulls");
  return ends.node.buffers.size() == 2 ? Ok() : ends.Refused("it has no values");
}

Status CheckRunEnds(const Column& column) {
  Column ends{column.node.children[0], &column, "run_ends", column.buffers};
  AB_RETURN_IF_ERROR(IdentifyRunEnds(ends));
  AB_RETURN_IF_ERROR(ends.Has(1, ends.form.type, ends.node.length, "run ends"));
  if (column.node.children[1].length < ends.node.length) return column.Refused("it has fewer values than runs");
  const int64_t last = ends.node.length == 0 ? 0 : ends.Integer(1, ends.node.length - 1);
  if (last >= column.node.length) return Ok();
  return column.Refused("its runs end at ", last, ", and it has ", column.node.length, " elements");
}

Status CheckNothing(const Column&) { return Ok(); }

Status CheckBits(const Column& column) { return column.Has(1, kUint8, BytesFor(column.node.length), "bits"); }

Status CheckFixed(const Column& column) {
  return column.Has(1, column.form.type, Product(column.node.length, column.form.width), "values");
}

Status CheckList(const Column& column) {
  return CheckOffsets(column, static_cast<uint64_t>(column.node.children[0].length));
}

// By Kind.
constexpr Status (*kSizes[])(const Column&) = {
    CheckNothing,  CheckBits,      CheckFixed,  CheckText,  CheckView,  CheckList,
    CheckListView, CheckFixedList, CheckStruct, CheckUnion, CheckUnion, CheckRunEnds,
};
static_assert(std::size(kSizes) == static_cast<size_t>(Kind::kRunEnds) + 1);

Status CheckColumn(Column& column);

Status CheckBelow(const Column& above, const Node& node, std::string_view name) {
  Column column{node, &above, name, above.buffers};
  return CheckColumn(column);
}

Status CheckDictionary(const Column& column) {
  const Node& node = column.node;
  const bool integers = node.format.size() == 1 && std::string_view("cCsSiIlL").find(node.format) != std::string::npos;
  if (!integers) return column.Refused("its indices are not integers");
  AB_RETURN_IF_ERROR(CheckBelow(column, *node.dictionary, "dictionary"));
  if (node.dictionary->length != 0 || node.nulls == node.length) return Ok();
  return column.Refused("its dictionary is empty");
}

Status CheckColumn(Column& column) {
  const Node& node = column.node;
  AB_RETURN_IF_ERROR(Identify(column));
  AB_RETURN_IF_ERROR(CheckCounts(column));
  AB_RETURN_IF_ERROR(CheckNulls(column));
  if (node.dictionary != nullptr) AB_RETURN_IF_ERROR(CheckDictionary(column));
  AB_RETURN_IF_ERROR(kSizes[static_cast<size_t>(column.form.kind)](column));
  for (const Node& child : node.children) AB_RETURN_IF_ERROR(CheckBelow(column, child, child.name));
  return Ok();
}

}  // namespace

Status Check(const Node& node, std::span<const Buffer> buffers) {
  Column column{node, nullptr, {}, buffers};
  return CheckColumn(column);
}

}  // namespace arraybridge::tables
