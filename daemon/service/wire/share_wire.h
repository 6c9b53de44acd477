// SPDX-License-Identifier: Apache-2.0
// Encodes a share without building a message: the bytes of an AcquireResponse contain the description that the
// producer sent once, at Publish. Answering an Acquire is then little more than a copy.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/broker/broker.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {

// The Broker's arguments of a Publish; views into the same bytes.
PublishCall CallOf(const wire::PublishRequest& request);
// Other processes must wait for the event before they read the share.
bool HasEvent(const wire::PublishRequest& request);

// Appends one LeasedShare to the bytes of an AcquireResponse.
void AppendLeased(const LeasedShare& leased, std::string* response);
void AppendDescriptorArena(uint64_t arena, std::string* response);
wire::Handle ToWire(const Handle& handle);

}  // namespace arraybridge::daemon
