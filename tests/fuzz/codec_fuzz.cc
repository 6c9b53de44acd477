// SPDX-License-Identifier: Apache-2.0
// Answers of an untrusted broker: any bytes for any message that the client decodes.
#include "client/wire/codec.h"
#include "tests/fuzz/input.h"

namespace arraybridge {
namespace {

constexpr uint64_t kNumbers[] = {0, 1, 255, 256, UINT64_C(1) << 40, UINT64_MAX};

// Does what a client does next with a decoded spec: every query must return a value or an error, without undefined
// behaviour.
void Question(const ArraySpec& spec) {
  (void)spec.elements();
  (void)spec.compact_bytes();
  (void)spec.compact();
  for (const uint64_t bytes : kNumbers) (void)spec.CheckInside(bytes);
}

void Decode(uint8_t message, std::string_view bytes) {
  switch (message % 12) {
    case 0:
      if (const auto said = codec::Read<wire::GetServerInfoResponse>(bytes); said.ok()) (void)codec::ServerOf(*said);
      return;
    case 1:
      return (void)codec::Read<wire::OpenSessionResponse>(bytes);
    case 2:
      return (void)codec::Read<wire::AllocateResponse>(bytes);
    case 3:
      return (void)codec::Read<wire::PublishResponse>(bytes);
    case 4: {
      const auto grants = codec::DecodeGrants(bytes);
      if (!grants.ok()) return;
      for (const auto& grant : grants->shares) {
        const auto described = codec::DecodeShare(grant.share);
        if (!described.ok()) continue;
        for (const auto& spec : described->share.arrays) Question(spec);
      }
      return;
    }
    case 5:
      return (void)codec::DecodeExported(bytes);
    case 6:
      return (void)codec::Read<wire::WithdrawResponse>(bytes);
    case 7: {
      const auto listed = codec::DecodeListed(bytes);
      if (!listed.ok()) return;
      for (const auto& row : listed->shares)
        for (const auto& spec : row.share.arrays) Question(spec);
      return;
    }
    case 8:
      return (void)codec::DecodeStats(bytes);
    case 9: {
      const auto described = codec::DecodeDescription(bytes);
      if (!described.ok()) return;
      for (const auto& spec : described->share.arrays) Question(spec);
      return;
    }
    case 10:
      (void)codec::Read<wire::WatchResponse>(bytes);
      return (void)codec::DecodeEvents(bytes);
    default: {
      Input input(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      const auto code = input.Take<uint32_t>();
      AB_CHECK(!codec::DecodeError(code, input.TakeRest()).ok());  // an error must stay an error for any payload
    }
  }
}

}  // namespace
}  // namespace arraybridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  arraybridge::Input input(data, size);
  const auto message = input.Take<uint8_t>();
  arraybridge::Decode(message, input.TakeRest());
  return 0;
}
