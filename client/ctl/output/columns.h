// SPDX-License-Identifier: Apache-2.0
// A Column is a named value of a row: shown, sorted by, selected by and grouped by. A Kind is one kind of list.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "client/ctl/output/table.h"

namespace arraybridge::ctl {

struct Cell {
  enum class Is : uint8_t { kText, kNumber, kSize, kAge };
  std::string text;  // if kText
  uint64_t number = 0;
  Is is = Is::kText;

  static Cell Text(std::string text) { return {std::move(text), 0, Is::kText}; }
  static Cell Number(uint64_t number) { return {{}, number, Is::kNumber}; }
  static Cell Size(uint64_t bytes) { return {{}, bytes, Is::kSize}; }
  static Cell Age(uint64_t milliseconds) { return {{}, milliseconds, Is::kAge}; }

  std::string In(const Table& table) const;
  friend auto operator<=>(const Cell& one, const Cell& other) {
    if (const auto order = one.number <=> other.number; std::is_neq(order)) return order;
    return one.text <=> other.text;
  }
};

template <class Row>
struct Column {
  std::string name;   // as in the header
  bool wide = false;  // shown in wide tables, CSV and JSON only
  std::function<Cell(const Row& row, bool wide)> cell;
};

template <class Row>
struct Kind {
  v1::ListRequest::Kind kind{};
  std::function<google::protobuf::RepeatedPtrField<Row>*(v1::ListResponse* answer)> rows;
  std::vector<Column<Row>> columns;
  std::function<const v1::Device&(const Row& row)> device = {};  // empty: the rows have no device
};

Kind<v1::ShareInfo> ShareKind();
Kind<v1::SessionInfo> SessionKind();
Kind<v1::LeaseInfo> LeaseKind();
Kind<v1::NamespaceInfo> NamespaceKind();
Kind<v1::DeviceInfo> DeviceKind();
// Shares sent in a second, by the namespace's owner, namespace and channel.
using ChannelRates = std::map<std::tuple<uint32_t, std::string, std::string>, double>;
inline ChannelRates::key_type RateKey(const v1::ChannelInfo& row) { return {row.uid(), row.namespace_(), row.name()}; }
// `rates`: null: unknown.
Kind<v1::ChannelInfo> ChannelKind(std::shared_ptr<const ChannelRates> rates = nullptr);
std::string ModeName(const v1::ChannelInfo& channel);
std::string RateText(double per_second);

// Calls `act` with the kind called `what`, or with shares for any other word.
template <class Act>
auto WithKind(const std::string& what, const Act& act) {
  if (what == "sessions") return act(SessionKind());
  if (what == "leases") return act(LeaseKind());
  if (what == "namespaces") return act(NamespaceKind());
  if (what == "devices") return act(DeviceKind());
  if (what == "channels") return act(ChannelKind());
  return act(ShareKind());
}

}  // namespace arraybridge::ctl
