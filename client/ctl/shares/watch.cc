// SPDX-License-Identifier: Apache-2.0
// Prints events as they arrive, one line each, flushed so that a pipe sees them at once.
#include <algorithm>
#include <ostream>
#include <utility>

#include "client/ctl/commands.h"
#include "client/ctl/output/print.h"
#include "client/ctl/output/table.h"
#include "client/ctl/shares/history.h"

namespace arraybridge::ctl {
namespace {

using std::to_string;

constexpr std::string_view kPrefix = "EVENT_KIND_";

std::string KindText(v1::EventKind kind) { return EnumText(v1::EventKind_Name(kind), kPrefix, kind); }

// REQUIRES: `text` is one of EventKinds.
v1::EventKind KindOf(const std::string& text) {
  v1::EventKind kind{};
  AB_CHECK(v1::EventKind_Parse(Concat(kPrefix, HeadingOf(text)), &kind));
  return kind;
}

std::string Details(const v1::Event& event) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : " ") + part;
  };
  add(event.verb());
  add(event.reason());
  add(event.note());
  return text;
}

std::vector<std::string> CellsOf(const v1::Event& event, const Table& table, const Style& style) {
  return {TimeText(event.time_ns(), style),
          KindText(event.kind()),
          event.session() == 0 ? "" : to_string(event.session()),
          event.process_id() == 0 ? "" : to_string(event.process_id()),
          event.namespace_(),
          event.name(),
          event.generation() == 0 ? "" : to_string(event.generation()),
          event.bytes() == 0 ? "" : table.Size(event.bytes()),
          Details(event)};
}

// Fixed widths, because each line is printed before later, wider ones are known.
const std::vector<size_t> kWidths = {12, 13, 7, 7, 9, 24, 5, 9, 0};
const std::vector<std::string> kHeader = {"TIME", "KIND", "SESSION", "PID", "NAMESPACE", "NAME", "GEN", "SIZE", "WHAT"};

class Printer {
 public:
  Printer(const Options& options, std::ostream& out) : options_(options), out_(out) {}

  void Print(const v1::Event& event) {
    if (IsJson(options_)) {
      static_cast<void>(PrintJson(event, true, out_));
    } else {
      const Style style = StyleOf(options_);
      Table table(kHeader, style, kWidths);
      table.Add(CellsOf(event, table, style));
      table.Print(out_, std::exchange(first_, false) && options_.header);
    }
    out_.flush();
  }

 private:
  const Options& options_;
  std::ostream& out_;
  bool first_ = true;
};

}  // namespace

std::vector<std::string> EventKinds() {
  std::vector<std::string> names;
  const auto* const kinds = v1::EventKind_descriptor();
  for (int i = 0; i < kinds->value_count(); ++i) {
    const auto kind = static_cast<v1::EventKind>(kinds->value(i)->number());
    if (kind != v1::EVENT_KIND_UNSPECIFIED) names.push_back(KindText(kind));
  }
  return names;
}

Status Watch(Connection& connection, const Options& options, const WatchWishes& wishes, std::ostream& out) {
  v1::WatchRequest request;
  request.set_namespace_(options.ns);
  request.set_name_prefix(wishes.name_prefix);
  for (const std::string& kind : wishes.kinds) request.add_kinds(KindOf(kind));
  Printer printer(options, out);
  uint64_t seen = 0;
  History history;
  const auto print = [&](const v1::Event& event) {
    printer.Print(event);
    return out.good() && ++seen != wishes.count;
  };
  const auto print_history = [&]() -> Result<bool> {
    if (wishes.since.count() == 0) return true;
    AB_ASSIGN_OR_RETURN(history, History::Since(wishes.since, request, connection));
    return std::ranges::all_of(history.events(), print);
  };
  return connection.Watch(request, print_history,
                          [&](const v1::Event& event) { return history.Has(event) || print(event); });
}

}  // namespace arraybridge::ctl
