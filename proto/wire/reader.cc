// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/reader.h"

#include "proto/boundary/text.h"

namespace arraybridge::wire {

uint64_t Reader::LongVarint(int bytes_max) {
  constexpr uint8_t kMore = 0x80;
  constexpr int kBits = 7;
  uint64_t value = 0;
  for (int i = 0; i < bytes_max && at_ != end_; ++i) {
    const auto byte = static_cast<uint8_t>(*at_++);
    value |= static_cast<uint64_t>(byte & ~kMore) << (kBits * i);
    if (byte < kMore) return value;
  }
  Fail();
  return 0;
}

std::string_view Reader::Take(uint64_t size) {
  if (failed_ || size > static_cast<uint64_t>(end_ - at_)) {
    Fail();
    return {};
  }
  const std::string_view taken(at_, static_cast<size_t>(size));
  at_ += size;
  return taken;
}

std::string_view Reader::View() { return Take(Varint(kBytesOf32Bits)); }

void Reader::GetFixed64(uint64_t& value) {
  constexpr int kByte = 8;
  const std::string_view bytes = Take(sizeof value);
  value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (kByte * i);
}

void Reader::GetText(std::string_view& text) {
  text = View();
  if (!IsUtf8(text)) Fail();
}

// A second occurrence is refused: libprotobuf would merge it into the first.
void Reader::GetOnce(std::string_view& message) {
  if (message.data() != nullptr) return Fail();
  message = View();
}

void Reader::Skip() {
  constexpr uint32_t kTypeMask = 7;
  constexpr uint64_t kFixed32Bytes = 4;
  switch (static_cast<Type>(tag_ & kTypeMask)) {
    case Type::kVarint:
      static_cast<void>(Varint(kBytesOf64Bits));
      return;
    case Type::kFixed64:
      static_cast<void>(Take(sizeof(uint64_t)));
      return;
    case Type::kBytes:
      static_cast<void>(View());
      return;
    case Type::kFixed32:
      static_cast<void>(Take(kFixed32Bytes));
      return;
  }
  Fail();
}

bool Reader::End(std::string_view message) {
  if (!failed_) return true;
  if (fault_->part.empty()) *fault_ = {message, message, tag_ >> 3};
  fault_->message = message;  // the outermost message is set last
  return false;
}

Status Malformed(const Fault& fault) {
  if (fault.message.empty()) return InvalidArgument("a message has more than ", kMessageBytesMax, " bytes");
  return InvalidArgument("these bytes are not a valid ", fault.message, ": field ", fault.field, " of ", fault.part,
                         " is malformed");
}

}  // namespace arraybridge::wire
