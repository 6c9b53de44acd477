// SPDX-License-Identifier: Apache-2.0
// The ends of channels that a fault_client has opened, one for each role and name. A share that is sent states its seed
// in its metadata, so that its receiver knows which words to expect.
#pragma once

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <arraybridge/broker.h>

#include "tests/faults/words.h"

namespace arraybridge {

class ChannelEnds {
 public:
  Status Open(Broker& broker, const std::string& name, Channel::Role role) {
    auto channel = broker.OpenChannel(name, role);
    if (!channel.ok()) return channel.status();
    ends_.insert_or_assign({name, role}, *std::move(channel));
    return Ok();
  }

  // Moves the placement into the channel.
  Status Send(const std::string& name, const Placement& placement, uint64_t seed, std::chrono::milliseconds timeout) {
    const auto end = ends_.find({name, Channel::Role::kSender});
    if (end == ends_.end()) return NotFound("no sending end of ", name);
    return end->second.Send(placement, {.metadata = std::to_string(seed), .timeout = timeout});
  }

  // Sends copies of the arrays.
  Status SendCopies(Broker& broker, const std::string& name, std::span<const View> views, uint64_t seed) {
    const auto end = ends_.find({name, Channel::Role::kSender});
    if (end == ends_.end()) return NotFound("no sending end of ", name);
    return broker.Send(end->second, views, {.metadata = std::to_string(seed)}, false).status();
  }

  // Receives a share and checks its words; returns its sequence, stream and seed.
  Result<std::string> Receive(const std::string& name, std::chrono::milliseconds timeout) {
    const auto end = ends_.find({name, Channel::Role::kReceiver});
    if (end == ends_.end()) return NotFound("no receiving end of ", name);
    const auto got = end->second.Receive({.timeout = timeout});
    if (!got.ok()) return got.status();
    const std::string& seed = got->share->metadata;
    AB_RETURN_IF_ERROR(CheckWords(got->views, std::stoull(seed)));
    return Concat(got->sent.sequence, " ", got->sent.stream, " ", seed);
  }

  Status Close(const std::string& name, Channel::Role role) {
    const auto end = ends_.find({name, role});
    if (end == ends_.end()) return NotFound("no such end of ", name);
    const Status closed = end->second.Close();
    if (closed.ok()) ends_.erase(end);  // else the caller may ask again
    return closed;
  }

 private:
  std::map<std::pair<std::string, Channel::Role>, Channel> ends_;
};

}  // namespace arraybridge
