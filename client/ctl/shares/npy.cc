// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/shares/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace arraybridge::ctl {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionBytes = 2;
constexpr size_t kDimensionsMax = 64;  // NumPy's limit
constexpr size_t kAlignment = 64;      // of the array's first byte in files that we write

struct NamedType {
  std::string_view name;  // without the byte order
  DataType type;
};
constexpr std::array<NamedType, 14> kTypes{{{"b1", {6, 8}},
                                            {"i1", {0, 8}},
                                            {"i2", {0, 16}},
                                            {"i4", {0, 32}},
                                            {"i8", {0, 64}},
                                            {"u1", {1, 8}},
                                            {"u2", {1, 16}},
                                            {"u4", {1, 32}},
                                            {"u8", {1, 64}},
                                            {"f2", {2, 16}},
                                            {"f4", {2, 32}},
                                            {"f8", {2, 64}},
                                            {"c8", {5, 64}},
                                            {"c16", {5, 128}}}};

template <class... Parts>
Status Bad(const Parts&... parts) {
  return InvalidArgument("its head ", parts...);
}

// The size of the field that contains the length of the head.
size_t LengthBytes(std::string_view start) { return start[kMagic.size()] == 1 ? 2 : 4; }

// Reads the dictionary of a head, token by token: the subset of Python's syntax that NumPy writes.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  void SkipSpace() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  bool Take(char wanted) {
    SkipSpace();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }
  char Next() { return AtEnd() ? '\0' : rest_.front(); }
  // In either kind of quotes. Text with escapes matches no name that we know.
  std::optional<std::string_view> TakeText() {
    const char quote = Next();
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    if (text.find('\\') != std::string_view::npos) return std::nullopt;
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::optional<int64_t> TakeNumber() {
    SkipSpace();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return number;
  }

 private:
  std::string_view rest_;
};

Result<DataType> TypeOf(std::string_view name) {
  const auto unable = [&](const auto&... why) {
    return MakeStatus(Code::kUnimplemented, "cannot share elements of type '", name, "': ", why...);
  };
  if (name.empty()) return Bad("names no type");
  const bool has_order = name.front() == '<' || name.front() == '>' || name.front() == '|' || name.front() == '=';
  const std::string_view bare = has_order ? name.substr(1) : name;
  if (!has_order || name.front() == '=') return Bad("names a type without its byte order: '", name, "'");
  const auto known = std::ranges::find(kTypes, bare, &NamedType::name);
  if (known == kTypes.end()) {
    const char kind = bare.empty() ? '\0' : bare.front();
    if (kind == 'M' || kind == 'm') return unable("times; save array.view('i8') instead");
    if (kind == 'V') return unable("bytes without a type, of a structure or of a type that NumPy does not know");
    if (kind == 'S' || kind == 'U') return unable("texts");
    if (kind == 'O') return unable("objects, which are pickles");
    if (kind == 'f' || kind == 'c') return unable("numbers of a size that differs between machines");
    return Bad("names a type that is not known: '", name, "'");
  }
  // A type of one byte has one byte order, whatever the head says.
  if (known->type.bits == 8 || name.front() == '<') return known->type;
  if (name.front() == '>') return unable("big-endian numbers; save x.astype(x.dtype.newbyteorder('<')) instead");
  return Bad("names a type without its byte order: '", name, "'");
}

Result<std::vector<int64_t>> TakeShape(Reader& reader) {
  std::vector<int64_t> shape;
  if (!reader.Take('(')) return Bad("has a shape that is not a tuple");
  bool comma = true;
  while (!reader.Take(')')) {
    if (!comma) return Bad("has a shape without a comma between its numbers");
    const auto number = reader.TakeNumber();
    if (!number) return Bad("has a shape with an element that is not a 64-bit number");
    if (*number < 0) return Bad("has a negative dimension, ", *number);
    if (shape.size() == kDimensionsMax) return Bad("has more than ", kDimensionsMax, " dimensions");
    shape.push_back(*number);
    comma = reader.Take(',');
  }
  // "(3)" is a number in Python, not a tuple.
  if (shape.size() == 1 && !comma) return Bad("has a shape that is not a tuple");
  return shape;
}

struct Header {
  std::optional<DataType> type;
  std::optional<bool> is_fortran;
  std::optional<std::vector<int64_t>> shape;
};

Status TakeValue(Reader& reader, std::string_view key, Header* header) {
  if (key == "descr" && !header->type) {
    if (reader.Next() == '[') {
      return MakeStatus(Code::kUnimplemented, "cannot share structures: save their fields one by one");
    }
    const auto text = reader.TakeText();
    if (!text) return Bad("has a type name that is not a string");
    AB_ASSIGN_OR_RETURN(const auto type, TypeOf(*text));
    header->type = type;
    return Ok();
  }
  if (key == "fortran_order" && !header->is_fortran) {
    header->is_fortran = reader.TakeWord("True");
    if (!*header->is_fortran && !reader.TakeWord("False"))
      return Bad("has a fortran_order that is neither True nor False");
    return Ok();
  }
  if (key == "shape" && !header->shape) {
    AB_ASSIGN_OR_RETURN(auto shape, TakeShape(reader));
    header->shape = std::move(shape);
    return Ok();
  }
  return Bad("has keys other than descr, fortran_order and shape, once each");
}

Result<Header> TakeDictionary(Reader& reader) {
  Header header;
  if (!reader.Take('{')) return Bad("is not a dictionary");
  bool comma = true;
  while (!reader.Take('}')) {
    if (!comma) return Bad("has no comma between its entries");
    const auto key = reader.TakeText();
    if (!key || !reader.Take(':')) return Bad("is not a dictionary");
    AB_RETURN_IF_ERROR(TakeValue(reader, *key, &header));
    comma = reader.Take(',');
  }
  if (!header.type || !header.is_fortran || !header.shape) return Bad("lacks one of descr, fortran_order and shape");
  return header;
}

}  // namespace

Result<size_t> NpyHeadBytes(std::string_view start) {
  if (start.size() < kMagic.size() + kVersionBytes || !start.starts_with(kMagic)) {
    return InvalidArgument("not a .npy file: it does not begin with \\x93NUMPY");
  }
  const auto byte = [start](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(start[at])); };
  const size_t major = byte(kMagic.size());
  const size_t minor = byte(kMagic.size() + 1);
  if (major < 1 || major > 3 || minor != 0) {
    return InvalidArgument("its version of the .npy format is ", major, ".", minor, "; supported are 1.0, 2.0 and 3.0");
  }
  const size_t length_at = kMagic.size() + kVersionBytes;
  const size_t length_bytes = LengthBytes(start);
  if (start.size() < length_at + length_bytes) return Bad("is truncated");
  size_t length = 0;
  for (size_t i = length_bytes; i > 0; --i) length = length << 8 | byte(length_at + i - 1);
  const size_t bytes = length_at + length_bytes + length;
  if (bytes > kNpyHeadBytesMax) return Bad("has ", bytes, " bytes; the limit is ", kNpyHeadBytesMax);
  return bytes;
}

Result<ArraySpec> ReadNpyHead(std::string_view head) {
  AB_ASSIGN_OR_RETURN(const auto bytes, NpyHeadBytes(head));
  if (head.size() < bytes) return Bad("is truncated: ", head.size(), " bytes of ", bytes);
  std::string_view text = head.substr(0, bytes);
  text.remove_prefix(kMagic.size() + kVersionBytes + LengthBytes(head));
  if (!text.ends_with('\n')) return Bad("does not end with a line feed");
  text.remove_suffix(1);
  Reader reader(text);
  AB_ASSIGN_OR_RETURN(auto header, TakeDictionary(reader));
  if (!reader.AtEnd()) return Bad("has text after its dictionary");
  if (*header.is_fortran && header.shape->size() > 1) {
    return MakeStatus(Code::kUnimplemented,
                      "cannot share an array in Fortran order: save numpy.ascontiguousarray(array) instead");
  }
  ArraySpec array;
  array.type = *header.type;
  array.dtype = NameOf(array.type);
  array.shape = *std::move(header.shape);
  const auto nbytes = array.compact_bytes();
  if (!nbytes.ok()) return Bad("has a shape of too many elements: ", nbytes.status().message());
  return array;
}

Result<std::string> NpyHead(const ArraySpec& array) {
  const auto known = std::ranges::find(kTypes, array.type, &NamedType::type);
  if (known == kTypes.end() || !(array.dtype.empty() || IsNameOf(array.dtype, array.type))) {
    return MakeStatus(Code::kUnimplemented, ".npy has no type for '", array.dtype,
                      "' that every reader knows: get the share in Python instead");
  }
  std::string text =
      Concat("{'descr': '", array.type.bits == 8 ? '|' : '<', known->name, "', 'fortran_order': False, 'shape': (");
  for (size_t i = 0; i < array.shape.size(); ++i) text += Concat(i == 0 ? "" : ", ", array.shape[i]);
  text += array.shape.size() == 1 ? ",), }" : "), }";
  const size_t before = kMagic.size() + kVersionBytes + 2;
  const size_t unpadded = before + text.size() + 1;
  text.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string head(kMagic);
  head += {'\x01', '\0', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return head + text;
}

}  // namespace arraybridge::ctl
