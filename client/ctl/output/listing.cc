// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/output/listing.h"

#include <google/protobuf/arena.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <thread>
#include <utility>

#include "client/ctl/output/columns.h"
#include "client/ctl/output/print.h"
#include "proto/boundary/handle.h"

namespace arraybridge::ctl {
namespace {

using std::chrono::steady_clock;

// The sums of one group of rows.
struct Group {
  Cell key;
  uint64_t rows = 0;
  uint64_t bytes = 0;
};

Result<uint32_t> UserOf(const std::string& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(text.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return InvalidArgument("--owner: there is no user '", text, "'");
  }
  return found->pw_uid;
}

std::vector<Column<Group>> GroupColumns(const std::string& what, const std::string& by) {
  return {{HeadingOf(by), false, [](const Group& group, bool) { return group.key; }},
          {HeadingOf(what), false, [](const Group& group, bool) { return Cell::Number(group.rows); }},
          {"SIZE", false, [](const Group& group, bool) { return Cell::Size(group.bytes); }}};
}

template <class Row>
const Column<Row>* ColumnCalled(const std::vector<Column<Row>>& columns, const std::string& name) {
  const auto found =
      std::find_if(columns.begin(), columns.end(), [&](const auto& column) { return WordOf(column.name) == name; });
  return found == columns.end() ? nullptr : &*found;
}

template <class Row>
Status CheckSort(const std::vector<Column<Row>>& columns, const std::string& sort) {
  if (sort.empty() || ColumnCalled(columns, sort) != nullptr) return Ok();
  std::string names;
  for (const auto& column : columns) names += (names.empty() ? "" : ", ") + WordOf(column.name);
  return InvalidArgument("--sort ", sort, ": there is no such column; choose one of ", names);
}

template <class Row>
using Conditions = std::vector<std::function<bool(const Row& row)>>;

// The conditions that every selected row meets. INVALID_ARGUMENT: rows have no such value, or there is no such user.
template <class Row>
Result<Conditions<Row>> ConditionsOf(const Kind<Row>& kind, const Selection& selection) {
  Conditions<Row> conditions;
  const auto refused = [&](std::string_view option) {
    return InvalidArgument(selection.what, " cannot be selected by ", option);
  };
  const auto add = [&](std::string_view option, const char* column, const auto& holds) {
    const auto* const found = ColumnCalled(kind.columns, column);
    if (found == nullptr) return refused(option);
    conditions.push_back([cell = found->cell, holds](const Row& row) { return holds(cell(row, true)); });
    return Ok();
  };
  if (!selection.owner.empty()) {
    const auto user = UserOf(selection.owner);
    if (!user.ok()) return user.status();
    AB_RETURN_IF_ERROR(add("--owner", "uid", [user = *user](const Cell& cell) {
      return cell.is == Cell::Is::kNumber && cell.number == user;
    }));
  }
  if (const auto process = selection.process_id) {
    AB_RETURN_IF_ERROR(add("--pid", "pid", [process](const Cell& cell) { return cell.number == *process; }));
  }
  if (const auto age = selection.older_than_ms) {
    AB_RETURN_IF_ERROR(add("--older-than", "age", [age](const Cell& cell) { return cell.number > *age; }));
  }
  if (selection.device.empty()) return conditions;
  if (kind.device == nullptr) return refused("--device");
  conditions.push_back([&](const Row& row) { return IsDevice(kind.device(row), selection.device); });
  return conditions;
}

// Null: the rows of this kind have no such value, or no bytes to add up.
template <class Row>
const Column<Row>* GroupingOf(const Kind<Row>& kind, const std::string& by) {
  if (kind.device == nullptr || ColumnCalled(kind.columns, "size") == nullptr) return nullptr;
  const auto* const found = ColumnCalled(kind.columns, by);
  return found == nullptr && by == "session" ? ColumnCalled(kind.columns, "maker") : found;
}

template <class Row>
Status CheckAgainst(const Kind<Row>& kind, const Selection& selection) {
  if (const auto conditions = ConditionsOf(kind, selection); !conditions.ok()) return conditions.status();
  if (selection.group_by.empty()) return CheckSort(kind.columns, selection.sort);
  if (GroupingOf(kind, selection.group_by) == nullptr) {
    return InvalidArgument(selection.what, " cannot be selected by --group-by");
  }
  return CheckSort(GroupColumns(selection.what, selection.group_by), selection.sort);
}

template <class Row>
void Sort(const std::vector<Column<Row>>& columns, const Selection& selection, std::vector<Row>* rows) {
  if (const auto* const column = ColumnCalled(columns, selection.sort); column != nullptr) {
    std::stable_sort(rows->begin(), rows->end(), [&](const Row& one, const Row& other) {
      return column->cell(one, true) < column->cell(other, true);
    });
  }
  if (selection.reverse) std::reverse(rows->begin(), rows->end());
}

template <class Row>
void PrintRows(const std::vector<Column<Row>>& columns, const std::vector<Row>& rows, const Options& options,
               std::ostream& out) {
  const Style style = StyleOf(options);
  const bool wide = style.output != Output::kTable;
  std::vector<std::string> header;
  for (const auto& column : columns) {
    if (wide || !column.wide) header.push_back(column.name);
  }
  Table table(header, style);
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const auto& column : columns) {
      if (wide || !column.wide) cells.push_back(column.cell(row, wide).In(table));
    }
    table.Add(std::move(cells));
  }
  table.Print(out, options.header);
}

template <class Row>
void PrintGroups(const Kind<Row>& kind, const Selection& selection, const std::vector<Row>& rows,
                 const Options& options, std::ostream& out) {
  const auto& key_of = GroupingOf(kind, selection.group_by)->cell;
  const auto& size_of = ColumnCalled(kind.columns, "size")->cell;
  std::map<Cell, Group> sums;
  for (const Row& row : rows) {
    const Cell key = key_of(row, true);
    Group& group = sums[key];
    group.key = key;
    group.rows += 1;
    group.bytes += size_of(row, true).number;
  }
  std::vector<Group> groups;
  groups.reserve(sums.size());
  for (auto& [key, group] : sums) groups.push_back(std::move(group));
  const auto columns = GroupColumns(selection.what, selection.group_by);
  Sort(columns, selection, &groups);
  PrintRows(columns, groups, options, out);
}

// REQUIRES: `rows` are selected.
template <class Row>
Status PrintSelected(const Kind<Row>& kind, const Selection& selection, std::vector<Row> rows, const Options& options,
                     std::ostream& out) {
  if (!selection.group_by.empty()) {
    PrintGroups(kind, selection, rows, options, out);
    return Ok();
  }
  Sort(kind.columns, selection, &rows);
  if (!IsJson(options)) {
    PrintRows(kind.columns, rows, options, out);
    return Ok();
  }
  if (options.output == Output::kJsonl) return PrintJsonLines(rows, out);
  v1::ListResponse answer;
  auto* const all = kind.rows(&answer);
  all->Reserve(static_cast<int>(rows.size()));
  for (Row& row : rows) *all->Add() = std::move(row);
  return PrintJson(answer, options, out);
}

// True if rows can be printed page by page: no row's place or text depends on later rows.
bool IsStreamed(const Selection& selection, const Options& options) {
  return options.output == Output::kJsonl && selection.sort.empty() && !selection.reverse && selection.group_by.empty();
}

// REQUIRES: CheckAgainst returned OK.
template <class Row>
Status PrintPages(const Kind<Row>& kind, const Selection& selection, const Options& options, const AskPage& ask,
                  std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto conditions, ConditionsOf(kind, selection));
  v1::ListRequest request;
  request.set_kind(kind.kind);
  request.set_namespace_(options.ns);
  std::vector<Row> rows;
  do {
    // Rows that stay would have to be copied out of an arena.
    google::protobuf::Arena arena;
    v1::ListResponse kept;
    auto* const streamed = google::protobuf::Arena::CreateMessage<v1::ListResponse>(&arena);
    v1::ListResponse& page = IsStreamed(selection, options) ? *streamed : kept;
    AB_RETURN_IF_ERROR(ask(request, &page));
    request.set_page_token(page.next_page_token());
    auto& listed = *kind.rows(&page);
    const auto unselected = [&](const Row& row) {
      return !std::ranges::all_of(conditions, [&](const auto& holds) { return holds(row); });
    };
    listed.erase(std::remove_if(listed.begin(), listed.end(), unselected), listed.end());
    if (IsStreamed(selection, options)) {
      AB_RETURN_IF_ERROR(PrintJsonLines(listed, out));
    } else {
      std::move(listed.begin(), listed.end(), std::back_inserter(rows));
    }
  } while (!request.page_token().empty());
  if (IsStreamed(selection, options)) return Ok();
  return PrintSelected(kind, selection, std::move(rows), options, out);
}

// Reads all channels twice.
Result<std::shared_ptr<const ChannelRates>> MeasureRates(const Options& options, const AskPage& ask) {
  constexpr std::chrono::milliseconds kInterval{300};
  using Counted = std::map<ChannelRates::key_type, std::pair<uint64_t, steady_clock::time_point>>;
  const auto count = [&]() -> Result<Counted> {
    Counted counted;
    v1::ListRequest request;
    request.set_kind(v1::ListRequest::CHANNELS);
    request.set_namespace_(options.ns);
    do {
      v1::ListResponse page;
      AB_RETURN_IF_ERROR(ask(request, &page));
      for (const auto& row : page.channels()) {
        counted[RateKey(row)] = {row.sent(), steady_clock::now()};
      }
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return counted;
  };
  AB_ASSIGN_OR_RETURN(const auto before, count());
  auto rates = std::make_shared<ChannelRates>();
  if (before.empty()) return std::shared_ptr<const ChannelRates>(std::move(rates));
  std::this_thread::sleep_for(std::min(kInterval, options.timeout / 4));
  AB_ASSIGN_OR_RETURN(const auto after, count());
  for (const auto& [name, now] : after) {
    const auto then = before.find(name);
    if (then == before.end() || now.first < then->second.first) continue;
    const std::chrono::duration<double> passed = now.second - then->second.second;
    (*rates)[name] = static_cast<double>(now.first - then->second.first) / passed.count();
  }
  return std::shared_ptr<const ChannelRates>(std::move(rates));
}

}  // namespace

const std::vector<std::string>& ListedKinds() {
  static const std::vector<std::string> kinds = {"shares", "sessions", "leases", "namespaces", "devices", "channels"};
  return kinds;
}

const std::vector<std::string>& Groupings() {
  static const std::vector<std::string> groupings = {"session", "device", "namespace"};
  return groupings;
}

std::vector<std::string> SortColumns() {
  std::set<std::string> names;
  for (const std::string& what : ListedKinds()) {
    WithKind(what, [&names](const auto& kind) {
      for (const auto& column : kind.columns) names.insert(WordOf(column.name));
    });
  }
  return {names.begin(), names.end()};
}

bool IsDevice(const v1::Device& device, const std::string& text) {
  if (text == DeviceName(device) || (!device.uuid().empty() && text == device.uuid())) return true;
  return device.type() == kDeviceCuda && text == Concat("cuda:", device.id());
}

Status CheckSelection(const Selection& selection) {
  return WithKind(selection.what, [&](const auto& kind) { return CheckAgainst(kind, selection); });
}

Status PrintListed(const Selection& selection, const Options& options, const AskPage& ask, std::ostream& out) {
  if (selection.what == "channels" && !IsJson(options)) {
    AB_RETURN_IF_ERROR(CheckAgainst(ChannelKind(), selection));
    AB_ASSIGN_OR_RETURN(auto rates, MeasureRates(options, ask));
    return PrintPages(ChannelKind(std::move(rates)), selection, options, ask, out);
  }
  return WithKind(selection.what, [&](const auto& kind) -> Status {
    AB_RETURN_IF_ERROR(CheckAgainst(kind, selection));
    return PrintPages(kind, selection, options, ask, out);
  });
}

Status Ls(Connection& connection, const Options& options, const Selection& selection, std::ostream& out) {
  const auto ask = [&](const v1::ListRequest& request, v1::ListResponse* page) {
    return connection.ListPage(request, page);
  };
  return PrintListed(selection, options, ask, out);
}

}  // namespace arraybridge::ctl
