// How a share crosses the wire without a message being built for it: the bytes of a v1.AcquireResponse, made of what
// the maker said once, at Publish. A getter's answer is then little more than a copy.
#pragma once

#include <cstdint>
#include <string>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/service/wire/publish_wire.h"

namespace arraybridge {

// What a Publish asks of the Broker; views into the same bytes.
PublishCall CallOf(const PublishAsked& asked);

// Appends one v1.LeasedShare to the bytes of a v1.AcquireResponse.
void AppendLeased(const LeasedShare& leased, std::string* response);
void AppendDescriptorArena(uint64_t arena, std::string* response);

// As a message, for who needs one. The bytes were made by the functions above, of what clients said.
// False: they are none; `message` holds what came before that.
bool ReadBack(const std::string& response, v1::AcquireResponse* message);

}  // namespace arraybridge
