// SPDX-License-Identifier: Apache-2.0
// The overview lists the numbers that metrics and status page both show, each once, with its name on each page.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/broker/ledger/snapshot.h"

namespace arraybridge::daemon {

struct Counter {
  uint64_t (v1::GetStatsResponse::*value)() const;
  std::string_view name;   // without the prefix, as in the message; ends in "_total" if it only grows
  std::string_view help;   // one sentence
  std::string_view label;  // on the status page; empty: not shown there
};

// In the order in which the pages show them.
std::span<const Counter> Counters();

// The sums of each user or, with `names`, of each namespace of a user. The default is by user, because otherwise every
// reader of these pages would learn the names of other users' namespaces. Two names that are Printable as the same text
// are one, since a scraper refuses a page with two samples of the same labels.
using Owner = std::pair<uint32_t, std::string>;  // uid; namespace, Printable, empty without `names`
std::map<Owner, NamespaceRow> SumByOwner(const std::vector<NamespaceRow>& rows, bool names);

// The user's number, or "shared".
std::string OwnerName(uint32_t uid);
// "local" or "grpc".
std::string_view NameOf(Door door);

}  // namespace arraybridge::daemon
