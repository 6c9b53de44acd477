// The overview is what metrics and status page both show: each number once, under the names that each page gives it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/snapshot.h"

namespace arraybridge {

struct Counter {
  uint64_t (v1::GetStatsResponse::*value)() const;
  std::string_view name;   // without the prefix, as in the message; ends in "_total" where it only grows
  std::string_view help;   // one sentence
  std::string_view label;  // on the status page; empty: not shown there
};

// In the order of the pages.
std::span<const Counter> Counters();

// What a user, or with `names` each of his namespaces, holds. By user alone unless the operator said otherwise: whoever
// may read these pages would learn others' names.
using Owner = std::pair<uint32_t, std::string>;  // uid; namespace, empty without `names`
std::map<Owner, NamespaceRow> SumByOwner(const std::vector<NamespaceRow>& rows, bool names);

// The user's number, or "shared".
std::string OwnerName(uint32_t uid);
// "local" or "grpc".
std::string_view NameOf(Door door);

}  // namespace arraybridge
