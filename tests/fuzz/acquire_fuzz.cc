// SPDX-License-Identifier: Apache-2.0
// ReadAcquire, which reads an Acquire in place, must return the same values as libprotobuf for the same bytes.
#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/wire/acquire_wire.h"
#include "daemon/service/wire/message_limits.h"
#include "tests/fuzz/input.h"

namespace arraybridge {
namespace {

void Acquire(std::string_view bytes) {
  const auto asked = ReadAcquire(bytes);
  if (!asked.ok()) return;
  v1::AcquireRequest said;
  AB_CHECK(said.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  AB_CHECK(asked->bytes == bytes);
  AB_CHECK(asked->ns == said.namespace_() && asked->note == said.note());
  AB_CHECK(asked->timeout_ms == said.timeout_ms() && asked->final_only == said.final_only());
  AB_CHECK(asked->fence_timeout_ms == said.fence_timeout_ms());
  AB_CHECK(asked->shares.size() == static_cast<size_t>(said.shares_size()));
  for (size_t i = 0; i < asked->shares.size(); ++i) {
    const ShareKey& share = asked->shares[i];
    const v1::ShareRef& ref = said.shares(static_cast<int>(i));
    AB_CHECK(share.name == ref.name() && Number(share.id) == ref.id() && share.generation == ref.generation());
  }
  (void)CheckShares(Limits{}, asked->shares);
}

}  // namespace
}  // namespace arraybridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  arraybridge::Input input(data, size);
  arraybridge::Acquire(input.TakeRest());
  return 0;
}
