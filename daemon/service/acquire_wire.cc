#include "daemon/service/acquire_wire.h"

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/wire_reader.h"
#include "proto/boundary/text.h"

namespace arraybridge {
namespace {

using wire::Bytes;
using wire::Reader;
using wire::Varint;
using wire::View;

// Of name and id the one that is said last holds.
bool ReadRef(Reader ref, ShareKey& key) {
  using Field = v1::ShareRef;
  while (wire::Advance(ref)) {
    switch (ref.tag_and_type()) {
      case Bytes(Field::kNameFieldNumber):
        key.name = View(ref);
        key.id = ShareId{};
        if (!IsUtf8(key.name)) return false;
        break;
      case Varint(Field::kIdFieldNumber):
        key.id = ShareId{ref.get_uint64()};
        key.name = {};
        break;
      case Varint(Field::kGenerationFieldNumber):
        key.generation = ref.get_uint64();
        break;
      default:
        ref.skip();
    }
  }
  return true;
}

bool ReadField(Reader& reader, AcquireAsked& asked) {
  using Field = v1::AcquireRequest;
  switch (reader.tag_and_type()) {
    case Bytes(Field::kNamespaceFieldNumber):
      asked.ns = View(reader);
      return IsUtf8(asked.ns);
    case Bytes(Field::kSharesFieldNumber):
      return ReadRef(reader.get_message(), asked.shares.emplace_back());
    case Varint(Field::kTimeoutMsFieldNumber):
      asked.timeout_ms = reader.get_uint64();
      return true;
    case Varint(Field::kFinalOnlyFieldNumber):
      asked.final_only = reader.get_uint64() != 0;
      return true;
    case Bytes(Field::kNoteFieldNumber):
      asked.note = View(reader);
      return IsUtf8(asked.note);
    case Varint(Field::kFenceTimeoutMsFieldNumber):
      asked.fence_timeout_ms = reader.get_uint64();
      return true;
    default:
      reader.skip();
      return true;
  }
}

}  // namespace

Result<AcquireAsked> ReadAcquire(std::string_view bytes) {
  return wire::ReadAsked<AcquireAsked>(bytes, "AcquireRequest", ReadField);
}

}  // namespace arraybridge
