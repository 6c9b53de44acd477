// SPDX-License-Identifier: Apache-2.0
// Converts the broker's values into messages and messages into the broker's values. It makes no decisions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/wire/life.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

void Fill(v1::Device* message, const Device& device);
void Fill(v1::Handle* message, const Handle& handle);
void Fill(v1::Limits* message, const Config& config);
void Fill(v1::DeviceInfo* message, const DeviceFacts& device);
void Fill(v1::Life* message, const Life& life);
void Fill(v1::Share* message, const ShareFacts& facts, const Handle& handle, Immutability immutability);
void Fill(v1::ShareInfo* message, const ShareRow& row);
void Fill(v1::SessionInfo* message, const SessionRow& row);
void Fill(v1::LeaseInfo* message, const LeaseRow& row);
void Fill(v1::NamespaceInfo* message, const NamespaceRow& row);
void Fill(v1::ChannelInfo* message, const ChannelRow& row);
void Fill(v1::GetStatsResponse* message, const Snapshot& snapshot);
void Fill(v1::Visit* message, const Visit& visit);
void Fill(v1::Offer* message, const OfferRow& offer);
// Fills in everything except the offers; the caller knows how many of them fit.
void Fill(v1::InspectResponse* message, const Inspected& inspected);

inline std::span<const uint8_t> Octets(std::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}
v1::Immutability ToMessage(Immutability immutability);
// The views point into the event.
wire::Event ToWire(const Event& event);
Device DeviceOf(const std::optional<wire::Device>& message);
ShareKey KeyOf(const wire::ShareRef& ref);
std::vector<ShareKey> KeysOf(std::span<const wire::ShareRef> refs);
// The views point into the messages.
ShareKey FromMessage(const v1::ShareRef& ref);
std::vector<ShareKey> FromMessage(const google::protobuf::RepeatedPtrField<v1::ShareRef>& refs);

}  // namespace arraybridge::daemon
