// SPDX-License-Identifier: Apache-2.0
// Encodes a share without building a message: the bytes of a v1.AcquireResponse contain the description that the
// producer sent once, at Publish. Answering an Acquire is then little more than a copy.
#pragma once

#include <cstdint>
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/service/wire/publish_wire.h"

namespace arraybridge {

// The Broker's arguments of a Publish; views into the same bytes.
PublishCall CallOf(const PublishAsked& asked);

// Appends one v1.LeasedShare to the bytes of a v1.AcquireResponse.
void AppendLeased(const LeasedShare& leased, std::string* response);
void AppendDescriptorArena(uint64_t arena, std::string* response);

// Decodes the bytes that the functions above wrote into a message. False: the bytes are not an AcquireResponse, because
// of what a client sent; `message` then holds the part before the error.
bool ReadBack(const std::string& response, v1::AcquireResponse* message);

}  // namespace arraybridge
