// SPDX-License-Identifier: Apache-2.0
#include "daemon/mover/tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "proto/wire/messages.h"
#include "proto/wire/writer.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHeaderMax = 1 << 20;
// A header of ours begins so; the hexadecimal digits of the label follow. Other fields of __metadata__ are for people.
constexpr std::string_view kBegin = R"({"__metadata__":{"arraybridge":")";

struct Name {
  std::string_view ours;
  std::string_view theirs;
};
constexpr std::array kDtypes = {Name{"bool", "BOOL"},    Name{"uint8", "U8"},    Name{"int8", "I8"},
                                Name{"uint16", "U16"},   Name{"int16", "I16"},   Name{"uint32", "U32"},
                                Name{"int32", "I32"},    Name{"uint64", "U64"},  Name{"int64", "I64"},
                                Name{"float16", "F16"},  Name{"float32", "F32"}, Name{"float64", "F64"},
                                Name{"bfloat16", "BF16"}};

// A tensor of the file: `from` and `to` are bytes of the share.
struct Tensor {
  std::string name;
  std::string dtype = "U8";
  std::vector<int64_t> shape;
  uint64_t from = 0;
  uint64_t to = 0;
};

Tensor BytesFrom(std::string name, uint64_t from, uint64_t to) {
  return {std::move(name), "U8", {static_cast<int64_t>(to - from)}, from, to};
}

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    text.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool Unhex(std::string_view text, std::string* bytes) {
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = DigitOf(text[i]);
    const int low = DigitOf(text[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes->push_back(static_cast<char>(high << 4 | low));
  }
  return text.size() % 2 == 0;
}

// Names of shares have no control characters.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted + '"';
}

// The bytes of a compact array of these sizes; more than `most`: the number is not exact.
uint64_t BytesOf(const wire::ArraySpec& spec, uint64_t most) {
  uint64_t bytes = spec.bits / 8;
  for (const int64_t extent : spec.shape) {
    if (extent == 0) return 0;
    if (extent < 0 || bytes > most / static_cast<uint64_t>(extent)) return UINT64_MAX;
    bytes *= static_cast<uint64_t>(extent);
  }
  return bytes;
}

// In C's order, without gaps.
bool IsCompact(const wire::ArraySpec& spec) {
  if (spec.strides.empty()) return true;
  if (spec.strides.size() != spec.shape.size()) return false;
  int64_t stride = 1;
  for (size_t i = spec.shape.size(); i-- > 0;) {
    if (spec.shape[i] > 1 && spec.strides[i] != stride) return false;
    stride *= spec.shape[i];
  }
  return true;
}

// The tensor of an array, if the format has its dtype and the array is compact.
std::optional<Tensor> TensorOf(const wire::ArraySpec& spec, std::string name, uint64_t size) {
  const auto dtype = std::ranges::find(kDtypes, spec.dtype, &Name::ours);
  if (dtype == kDtypes.end() || spec.lanes > 1 || spec.bits % 8 != 0 || !IsCompact(spec)) return std::nullopt;
  const uint64_t bytes = BytesOf(spec, size);
  if (bytes > size || spec.offset > size - bytes) return std::nullopt;
  return Tensor{std::move(name), std::string(dtype->theirs), spec.shape, spec.offset, spec.offset + bytes};
}

// All tensors of the file, without gaps. One of all bytes if an array has no form in the format.
std::vector<Tensor> TensorsOf(const label::Label& label) {
  std::vector<Tensor> plain{BytesFrom("bytes", 0, label.size)};
  const auto share = wire::Decode<wire::Share>(label.description);
  if (!share.ok()) return plain;
  const auto specs = wire::Decode<wire::ArraySpecs>(share->specs);
  if (!specs.ok()) return plain;
  std::vector<Tensor> arrays;
  for (const wire::ArraySpec& spec : specs->arrays) {
    auto tensor = TensorOf(spec, specs->arrays.size() == 1 ? "array" : Concat("array.", arrays.size()), label.size);
    if (!tensor) return plain;
    if (tensor->from < tensor->to) arrays.push_back(*std::move(tensor));
  }
  std::ranges::sort(arrays, {}, &Tensor::from);
  std::vector<Tensor> all;
  uint64_t end = 0;
  const auto fill = [&](uint64_t to) {
    if (end < to) all.push_back(BytesFrom(Concat("gap.", end), end, to));
  };
  for (Tensor& array : arrays) {
    if (array.from < end) return plain;
    fill(array.from);
    end = array.to;
    all.push_back(std::move(array));
  }
  fill(label.size);
  return all;
}

std::string TextOf(const Tensor& tensor) {
  std::string shape;
  for (const int64_t extent : tensor.shape) shape += Concat(shape.empty() ? "" : ",", extent);
  return Concat(Quoted(tensor.name), R"(:{"dtype":")", tensor.dtype, R"(","shape":[)", shape, R"(],"data_offsets":[)",
                tensor.from, ",", tensor.to, "]}");
}

// The label, and its own digest before it.
std::string Sealed(const label::Label& label) {
  std::string bytes;
  wire::AppendBackwards(&bytes, [&](auto& out) { label::Write(out, label); });
  const uint64_t digest = Digest::OfText(bytes);
  return Hex({reinterpret_cast<const char*>(&digest), sizeof digest}) + Hex(bytes);
}

Status NoneOfOurs() {
  return FailedPrecondition(
      "the file does not have the header of a share: this broker has not written it, or it is damaged");
}

}  // namespace

std::string HeaderOf(const label::Label& label) {
  std::string json =
      Concat(kBegin, Sealed(label), R"(","name":)", Quoted(label.name), R"(,"namespace":)", Quoted(label.ns),
             R"(,"generation":")", label.generation, R"(","owner_uid":")", label.maker_uid, R"(","durable":")",
             label.durable ? "true" : "false", R"(","digest":"xxh3-128:)",
             TextOf(Digest::Value{label.digest_low, label.digest_high}), "\"}");
  for (const Tensor& tensor : TensorsOf(label)) json += Concat(",", TextOf(tensor));
  json += "}";
  const uint64_t unpadded = sizeof(uint64_t) + json.size();
  json.append((unpadded + kPage - 1) / kPage * kPage - unpadded, ' ');
  const uint64_t length = json.size();
  std::string header(reinterpret_cast<const char*>(&length), sizeof length);
  return header + json;
}

uint64_t DataStart(const label::Label& label) { return HeaderOf(label).size(); }

uint64_t HeaderBytes(std::string_view start) {
  uint64_t length = 0;
  if (start.size() < sizeof length) return 0;
  std::memcpy(&length, start.data(), sizeof length);
  return length > kHeaderMax ? 0 : sizeof length + length;
}

Result<label::Label> LabelIn(std::string_view header, std::string* storage) {
  if (header.size() < sizeof(uint64_t)) return NoneOfOurs();
  header.remove_prefix(sizeof(uint64_t));
  if (!header.starts_with(kBegin)) return NoneOfOurs();
  header.remove_prefix(kBegin.size());
  const size_t end = header.find('"');
  storage->clear();
  uint64_t digest = 0;
  if (end == std::string_view::npos || !Unhex(header.substr(0, end), storage) || storage->size() < sizeof digest) {
    return NoneOfOurs();
  }
  std::memcpy(&digest, storage->data(), sizeof digest);
  storage->erase(0, sizeof digest);
  if (Digest::OfText(*storage) != digest) return NoneOfOurs();
  label::Label label;
  wire::Fault fault;
  wire::Reader in(*storage, &fault);
  if (!label::Read(in, label)) return NoneOfOurs();
  return label;
}

}  // namespace arraybridge::daemon
