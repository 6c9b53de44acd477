#include "daemon/service/share_wire.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string_view>

namespace arraybridge {
namespace {

using google::protobuf::io::CodedOutputStream;

constexpr uint8_t kVarint = 0;
constexpr uint8_t kBytes = 2;
// A tag, as all field numbers are below 16, and a number or a length.
constexpr size_t kFieldBytesMax = 1 + 10;

// Writes a message from its end to its beginning: the length of what is nested is known when its turn comes, and
// nothing is counted first. So the last field is put first.
class BackWriter {
 public:
  explicit BackWriter(char* end) : at_(reinterpret_cast<uint8_t*>(end)) {}
  const char* at() const { return reinterpret_cast<const char*>(at_); }
  // A number that is 0 is left out, and bytes of which there are none.
  void Number(int field, uint64_t value) {
    if (value != 0) Field(field, kVarint, value);
  }
  void Raw(std::string_view bytes) {
    at_ -= bytes.size();
    std::memcpy(at_, bytes.data(), bytes.size());
  }
  void Bytes(int field, std::string_view bytes) {
    if (bytes.empty()) return;
    Raw(bytes);
    Field(field, kBytes, bytes.size());
  }
  // What was written since at() was `end` is this field.
  void Nest(int field, const char* end) { Field(field, kBytes, static_cast<size_t>(end - at())); }

 private:
  void Field(int field, uint8_t kind, uint64_t value) {
    at_ -= CodedOutputStream::VarintSize64(value);
    CodedOutputStream::WriteVarint64ToArray(value, at_);
    *--at_ = static_cast<uint8_t>(field << 3 | kind);
  }

  uint8_t* at_;
};

void PutDevice(const Device& device, BackWriter& out) {
  out.Bytes(v1::Device::kUuidFieldNumber, device.uuid);
  out.Number(v1::Device::kIdFieldNumber, static_cast<uint64_t>(device.id));
  out.Number(v1::Device::kTypeFieldNumber, static_cast<uint64_t>(device.type));
}

void PutHandle(const Handle& handle, BackWriter& out) {
  out.Bytes(v1::Handle::kOpaqueFieldNumber, handle.opaque);
  const char* const device = out.at();
  PutDevice(handle.device, out);
  out.Nest(v1::Handle::kDeviceFieldNumber, device);
  out.Number(v1::Handle::kArenaSizeFieldNumber, handle.arena_size);
  out.Number(v1::Handle::kSizeFieldNumber, handle.size);
  out.Number(v1::Handle::kOffsetFieldNumber, handle.offset);
  out.Number(v1::Handle::kGenerationFieldNumber, handle.generation);
  out.Number(v1::Handle::kArenaFieldNumber, handle.arena);
  out.Number(v1::Handle::kKindFieldNumber, static_cast<uint64_t>(handle.kind));
}

// Done is what proto3 leaves out.
void PutFence(const Fence& fence, BackWriter& out) {
  if (fence.done()) return;
  const char* const end = out.at();
  out.Bytes(v1::Fence::kOpaqueFieldNumber, fence.event);
  out.Number(v1::Fence::kKindFieldNumber, v1::Fence::EVENT);
  out.Nest(v1::Share::kFenceFieldNumber, end);
}

void PutShare(const LeasedShare& leased, BackWriter& out) {
  const ShareFacts& facts = *leased.facts;
  out.Number(v1::Share::kUnnamedFieldNumber, facts.unnamed ? 1 : 0);
  out.Raw(facts.description);
  PutFence(leased.fence, out);
  out.Number(v1::Share::kImmutabilityFieldNumber, static_cast<uint64_t>(leased.immutability));
  const char* const handle = out.at();
  PutHandle(leased.handle, out);
  out.Nest(v1::Share::kHandleFieldNumber, handle);
  out.Number(v1::Share::kGenerationFieldNumber, facts.generation);
  out.Bytes(v1::Share::kNameFieldNumber, facts.name);
  out.Bytes(v1::Share::kNamespaceFieldNumber, facts.ns);
  out.Number(v1::Share::kIdFieldNumber, Number(facts.id));
}

// As much as it may come to.
size_t BytesMaxOf(const LeasedShare& leased) {
  constexpr size_t kFields = 24;
  const ShareFacts& facts = *leased.facts;
  return kFields * kFieldBytesMax + facts.ns.size() + facts.name.size() + facts.description.size() +
         leased.handle.device.uuid.size() + leased.handle.opaque.size() + leased.fence.event.size();
}

// Room for `most` bytes at the end, which `put` fills from its end on. What was there keeps its capacity, so a reused
// answer allocates nothing.
template <class Put>
void AppendBackwards(size_t most, std::string* text, Put put) {
  const size_t before = text->size();
  text->resize(before + most);
  BackWriter out(text->data() + text->size());
  put(out);
  text->erase(before, static_cast<size_t>(out.at() - (text->data() + before)));
}

// The bytes of a v1.Share that holds what its maker said, and nothing else.
std::string DescriptionOf(const PublishAsked& asked) {
  std::string description;
  const size_t most = 3 * kFieldBytesMax + asked.specs.size() + asked.structure.size() + asked.metadata.size();
  AppendBackwards(most, &description, [&](BackWriter& out) {
    out.Bytes(v1::Share::kMetadataFieldNumber, asked.metadata);
    out.Bytes(v1::Share::kStructureFieldNumber, asked.structure);
    out.Bytes(v1::Share::kSpecsFieldNumber, asked.specs);
  });
  return description;
}

}  // namespace

PublishCall CallOf(const PublishAsked& asked) {
  PublishCall call;
  call.ns = asked.ns;
  call.name = asked.name;
  call.arena = ArenaId{asked.arena};
  call.arena_generation = asked.arena_generation;
  call.offset = asked.offset;
  call.size = asked.size;
  call.description = DescriptionOf(asked);
  call.replace = asked.replace;
  call.sealed = asked.sealed;
  // More milliseconds than a clock can count are for ever.
  constexpr uint64_t kLongest = std::numeric_limits<int64_t>::max() / 1'000'000;
  call.lifetime = std::chrono::milliseconds(std::min(asked.lifetime_ms, kLongest));
  if (asked.fence_kind == v1::Fence::EVENT) call.fence.event = asked.fence_event;
  call.channel = ChannelEndId{asked.channel};
  call.note = asked.note;
  return call;
}

void AppendLeased(const LeasedShare& leased, std::string* response) {
  AppendBackwards(BytesMaxOf(leased), response, [&](BackWriter& out) {
    const char* const end = out.at();
    PutShare(leased, out);
    out.Nest(v1::LeasedShare::kShareFieldNumber, end);
    out.Number(v1::LeasedShare::kLeaseFieldNumber, Number(leased.lease));
    out.Nest(v1::AcquireResponse::kSharesFieldNumber, end);
  });
}

bool ReadBack(const std::string& response, v1::AcquireResponse* message) { return message->ParseFromString(response); }

void AppendDescriptorArena(uint64_t arena, std::string* response) {
  AppendBackwards(kFieldBytesMax, response,
                  [&](BackWriter& out) { out.Number(v1::AcquireResponse::kDescriptorArenaFieldNumber, arena); });
}

}  // namespace arraybridge
