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

// A sink for fields: this one counts the bytes that the other writes. All field numbers are below 16: one byte a tag.
class Counter {
 public:
  size_t bytes() const { return bytes_; }
  void Number(int, uint64_t value) {
    if (value != 0) bytes_ += 1 + CodedOutputStream::VarintSize64(value);
  }
  void Length(int, size_t length) { bytes_ += 1 + CodedOutputStream::VarintSize64(length); }
  void Raw(std::string_view bytes) { bytes_ += bytes.size(); }
  void Bytes(int field, std::string_view bytes) {
    if (bytes.empty()) return;
    Length(field, bytes.size());
    Raw(bytes);
  }

 private:
  size_t bytes_ = 0;
};

class Writer {
 public:
  explicit Writer(char* out) : out_(reinterpret_cast<uint8_t*>(out)) {}
  void Number(int field, uint64_t value) {
    if (value == 0) return;
    Tag(field, kVarint);
    out_ = CodedOutputStream::WriteVarint64ToArray(value, out_);
  }
  void Length(int field, size_t length) {
    Tag(field, kBytes);
    out_ = CodedOutputStream::WriteVarint64ToArray(length, out_);
  }
  void Raw(std::string_view bytes) {
    std::memcpy(out_, bytes.data(), bytes.size());
    out_ += bytes.size();
  }
  void Bytes(int field, std::string_view bytes) {
    if (bytes.empty()) return;
    Length(field, bytes.size());
    Raw(bytes);
  }

 private:
  void Tag(int field, uint8_t kind) { *out_++ = static_cast<uint8_t>(field << 3 | kind); }

  uint8_t* out_;
};

template <class Sink>
void PutDevice(const Device& device, Sink& sink) {
  sink.Number(v1::Device::kTypeFieldNumber, static_cast<uint64_t>(device.type));
  sink.Number(v1::Device::kIdFieldNumber, static_cast<uint64_t>(device.id));
  sink.Bytes(v1::Device::kUuidFieldNumber, device.uuid);
}

template <class Sink>
void PutHandle(const Handle& handle, size_t device_bytes, Sink& sink) {
  sink.Number(v1::Handle::kKindFieldNumber, static_cast<uint64_t>(handle.kind));
  sink.Number(v1::Handle::kArenaFieldNumber, handle.arena);
  sink.Number(v1::Handle::kGenerationFieldNumber, handle.generation);
  sink.Number(v1::Handle::kOffsetFieldNumber, handle.offset);
  sink.Number(v1::Handle::kSizeFieldNumber, handle.size);
  sink.Number(v1::Handle::kArenaSizeFieldNumber, handle.arena_size);
  sink.Length(v1::Handle::kDeviceFieldNumber, device_bytes);
  PutDevice(handle.device, sink);
  sink.Bytes(v1::Handle::kOpaqueFieldNumber, handle.opaque);
}

// Done is what proto3 leaves out.
template <class Sink>
void PutFence(const Fence& fence, Sink& sink) {
  if (fence.done()) return;
  constexpr size_t kKindBytes = 2;
  const size_t event_bytes = 1 + CodedOutputStream::VarintSize64(fence.event.size()) + fence.event.size();
  sink.Length(v1::Share::kFenceFieldNumber, kKindBytes + event_bytes);
  sink.Number(v1::Fence::kKindFieldNumber, v1::Fence::EVENT);
  sink.Bytes(v1::Fence::kOpaqueFieldNumber, fence.event);
}

template <class Sink>
void PutShare(const LeasedShare& leased, size_t handle_bytes, size_t device_bytes, Sink& sink) {
  const ShareFacts& facts = *leased.facts;
  sink.Number(v1::Share::kIdFieldNumber, Number(facts.id));
  sink.Bytes(v1::Share::kNamespaceFieldNumber, facts.ns);
  sink.Bytes(v1::Share::kNameFieldNumber, facts.name);
  sink.Number(v1::Share::kGenerationFieldNumber, facts.generation);
  sink.Length(v1::Share::kHandleFieldNumber, handle_bytes);
  PutHandle(leased.handle, device_bytes, sink);
  sink.Number(v1::Share::kImmutabilityFieldNumber, static_cast<uint64_t>(leased.immutability));
  sink.Number(v1::Share::kUnnamedFieldNumber, facts.unnamed ? 1 : 0);
  PutFence(leased.fence, sink);
  sink.Raw(facts.description);
}

template <class Sink>
void PutLeased(const LeasedShare& leased, size_t share_bytes, size_t handle_bytes, size_t device_bytes, Sink& sink) {
  sink.Number(v1::LeasedShare::kLeaseFieldNumber, Number(leased.lease));
  sink.Length(v1::LeasedShare::kShareFieldNumber, share_bytes);
  PutShare(leased, handle_bytes, device_bytes, sink);
}

// Room for `bytes` more at the end; what was there keeps its capacity, so a reused answer allocates nothing.
char* Grow(std::string* text, size_t bytes) {
  const size_t before = text->size();
  text->resize(before + bytes);
  return text->data() + before;
}

template <class Sink>
void PutDescription(const PublishAsked& asked, Sink& sink) {
  sink.Bytes(v1::Share::kSpecsFieldNumber, asked.specs);
  sink.Bytes(v1::Share::kStructureFieldNumber, asked.structure);
  sink.Bytes(v1::Share::kMetadataFieldNumber, asked.metadata);
}

// The bytes of a v1.Share that holds what its maker said, and nothing else.
std::string DescriptionOf(const PublishAsked& asked) {
  Counter whole;
  PutDescription(asked, whole);
  std::string description;
  Writer writer(Grow(&description, whole.bytes()));
  PutDescription(asked, writer);
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
  Counter device;
  PutDevice(leased.handle.device, device);
  Counter handle;
  PutHandle(leased.handle, device.bytes(), handle);
  Counter share;
  PutShare(leased, handle.bytes(), device.bytes(), share);
  Counter whole;
  PutLeased(leased, share.bytes(), handle.bytes(), device.bytes(), whole);
  Counter framed;
  framed.Length(v1::AcquireResponse::kSharesFieldNumber, whole.bytes());
  Writer writer(Grow(response, framed.bytes() + whole.bytes()));
  writer.Length(v1::AcquireResponse::kSharesFieldNumber, whole.bytes());
  PutLeased(leased, share.bytes(), handle.bytes(), device.bytes(), writer);
}

bool ReadBack(const std::string& response, v1::AcquireResponse* message) { return message->ParseFromString(response); }

void AppendDescriptorArena(uint64_t arena, std::string* response) {
  Counter counter;
  counter.Number(v1::AcquireResponse::kDescriptorArenaFieldNumber, arena);
  Writer(Grow(response, counter.bytes())).Number(v1::AcquireResponse::kDescriptorArenaFieldNumber, arena);
}

}  // namespace arraybridge
