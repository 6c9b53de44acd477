// SPDX-License-Identifier: Apache-2.0
// The handles of the C API: each owns an object of the C++ API.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <arraybridge/arraybridge.h>
#include <arraybridge/broker.h>
#include <arraybridge/bundle.h>

struct ab_broker {
  arraybridge::Broker broker;
};

struct ab_array {
  std::vector<arraybridge::View> views;
  std::optional<arraybridge::Placement> placement;  // of an array made by ab_empty
  std::shared_ptr<const arraybridge::Share> share;  // of other arrays
  arraybridge::Sent sent;
  std::optional<arraybridge::Bundle> bundle;
  // Entries of the bundle that were asked for, and its fingerprint: callers are given pointers into them.
  mutable std::map<uint64_t, arraybridge::Bundle::Array> entries;
  std::string fingerprint;
};

struct ab_channel {
  arraybridge::Broker& broker;
  arraybridge::Channel channel;
  arraybridge::PeerDeath on_peer_death;
  arraybridge::Channel::Role role;
};
