// SPDX-License-Identifier: Apache-2.0
// The commands on one channel.
#include <algorithm>
#include <chrono>
#include <ostream>
#include <thread>
#include <utility>

#include "client/ctl/commands.h"
#include "client/ctl/output/columns.h"
#include "client/ctl/output/table.h"

namespace arraybridge::ctl {
namespace {

std::string NamespaceOf(const Options& options) { return options.ns.empty() ? "default" : options.ns; }

void AddEnds(Table& table, const v1::ChannelInfo& channel) {
  for (const auto& end : channel.ends()) {
    const bool known = end.process_id() != 0 || end.session() != 0;
    std::string text = known ? Concat(end.client().empty() ? "a client" : end.client(), ", process ", end.process_id())
                             : "another user's process";
    if (end.session() != 0) text += Concat(", session ", end.session());
    text += Concat(end.sends() ? ", sent " : ", received ", end.shares());
    if (!end.sends()) text += Concat(", waiting ", end.waiting());
    if (end.dropped() > 0) text += Concat(", missed ", end.dropped());
    if (end.closed_ms() > 0) text += Concat(", ended ", Cell::Age(end.closed_ms()).In(table), " ago");
    table.Add({end.sends() ? "sender" : "receiver", std::move(text)});
  }
  if (std::ranges::any_of(channel.ends(), [](const auto& end) { return end.closed_ms() > 0; })) {
    table.Add({"awaits", Concat("a receiver, which will be told that stream ", channel.stream(), " has ended")});
  }
}

Status DropQueued(Connection& connection, const Options& options, const std::string& name, bool remove,
                  std::ostream& out) {
  v1::WithdrawRequest request;
  request.set_namespace_(options.ns);
  request.set_channel(name);
  request.set_remove(remove);
  AB_ASSIGN_OR_RETURN(const auto dropped, connection.Withdraw(request));
  if (IsJson(options)) return PrintJson(dropped, options, out);
  out << (remove ? "removed; " : "") << "dropped " << dropped.withdrawn() << " queued arrays\n";
  return Ok();
}

}  // namespace

Result<v1::ChannelInfo> FindChannel(Connection& connection, const Options& options, const std::string& name) {
  v1::ListRequest request;
  request.set_kind(v1::ListRequest::CHANNELS);
  request.set_namespace_(NamespaceOf(options));
  request.set_name_prefix(name);
  request.set_ends(true);
  do {
    v1::ListResponse page;
    AB_RETURN_IF_ERROR(connection.ListPage(request, &page));
    for (auto& row : *page.mutable_channels()) {
      if (row.name() == name) return std::move(row);
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return NotFound("namespace '", NamespaceOf(options), "' has no channel '", name, "'").Because("CHANNEL_NOT_FOUND");
}

Status ShowChannel(Connection& connection, const Options& options, const ChannelArgument& channel, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(auto found, FindChannel(connection, options, channel.name));
  if (IsJson(options)) return PrintJson(found, options, out);
  const uint64_t before = found.sent();
  const auto begun = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::min(channel.interval, options.timeout / 4));
  AB_ASSIGN_OR_RETURN(found, FindChannel(connection, options, channel.name));
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
  // Less than before: the channel was made anew.
  const double sent = found.sent() < before ? 0 : static_cast<double>(found.sent() - before);
  Table table({"WHAT", "VALUE"}, StyleOf(options));
  table.Add({"channel", found.name()});
  table.Add({"namespace", found.namespace_()});
  table.Add({"mode", ModeName(found)});
  table.Add({"capacity", std::to_string(found.capacity())});
  if (found.replay() > 0) table.Add({"replay", std::to_string(found.replay())});
  table.Add({"stream", std::to_string(found.stream())});
  table.Add({"queued", Concat(found.queued(), ", ", Cell::Size(found.queued_bytes()).In(table))});
  if (found.queued() > 0) table.Add({"oldest", Cell::Age(found.oldest_ms()).In(table)});
  table.Add({"sent", Concat(found.sent(), ", ", RateText(sent / passed.count()))});
  table.Add({"received", std::to_string(found.received())});
  table.Add({"dropped", std::to_string(found.dropped())});
  table.Add({"direct", found.direct() ? "yes" : "no"});
  AddEnds(table, found);
  table.Print(out, options.header);
  return Ok();
}

Status DrainChannel(Connection& connection, const Options& options, const ChannelArgument& channel, std::ostream& out) {
  return DropQueued(connection, options, channel.name, false, out);
}

Status RemoveChannel(Connection& connection, const Options& options, const ChannelArgument& channel,
                     std::ostream& out) {
  return DropQueued(connection, options, channel.name, true, out);
}

}  // namespace arraybridge::ctl
