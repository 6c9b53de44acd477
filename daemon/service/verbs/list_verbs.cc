// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/list_verbs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"
#include "proto/boundary/frame.h"

namespace arraybridge::daemon {
namespace {

constexpr size_t kPageTokenBytes = 512;
constexpr uint32_t kPageRowsMax = 512;
constexpr size_t kOfferOverhead = 64;  // of one row in a message, without its strings

}  // namespace

v1::GetServerInfoResponse ListVerbs::GetServerInfo() const {
  v1::GetServerInfoResponse info;
  info.set_version(ARRAYBRIDGE_VERSION);
  const Token& broker_id = broker_.broker_id();
  info.set_broker_id(broker_id.data(), broker_id.size());
  info.set_protocol_min(kProtocolVersion);
  info.set_protocol_max(kProtocolVersion);
  info.set_boot_id(here_.boot_id);
  const auto uptime = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_);
  info.set_uptime_ms(static_cast<uint64_t>(uptime.count()));
  info.set_clock_ms(static_cast<uint64_t>(InMilliseconds(Clock::now())));
  Fill(info.mutable_limits(), config_);
  for (const DeviceFacts& device : broker_.Devices()) Fill(info.add_devices(), device);
  info.add_capabilities("tickets");
  if (config_.cuda_events) info.add_capabilities("events");
  info.set_draining(admission_.draining());
  info.set_exit_when_idle_ms(static_cast<uint64_t>(config_.exit_when_idle.count()));
  info.set_linger_ms(static_cast<uint64_t>(std::max(config_.exit_when_idle, config_.linger).count()));
  info.set_pid_namespace(here_.pid_namespace);
  Fill(info.mutable_life(), life_);
  info.set_no_gpu(no_gpu_.why);
  if (!no_gpu_.why.empty()) info.set_no_gpu_cause(static_cast<v1::RefusalCause>(no_gpu_.cause));
  return info;
}

Result<Answer> ListVerbs::GetStats(const Caller& caller, const wire::GetStatsRequest&) {
  return caller.hears ? AnswerOf(Stats()) : Answer{};
}

v1::GetStatsResponse ListVerbs::Stats(const Snapshot& snapshot) const {
  v1::GetStatsResponse stats;
  Fill(&stats, snapshot);
  stats.set_waiting(line_.waiting());
  for (const DeviceFacts& device : broker_.Devices()) Fill(stats.add_devices(), device);
  stats.set_refusals_total(counts_.refusals());
  stats.set_sessions_cut_total(counts_.cuts());
  return stats;
}

Result<Answer> ListVerbs::List(const Caller& caller, const v1::ListRequest& request) {
  if (!caller.hears) return Answer{};
  AB_RETURN_IF_ERROR(CheckList(config_.limits, request));
  publishes_.ServeQueued(caller.session, request.namespace_().empty()
                                             ? std::nullopt
                                             : std::optional<std::string_view>(request.namespace_()));
  AB_ASSIGN_OR_RETURN(const auto listed, ListPage(caller.session, false, request));
  return AnswerOf(listed);
}

Result<v1::ListResponse> ListVerbs::ListEverybodys(const v1::ListRequest& request) const {
  AB_RETURN_IF_ERROR(CheckList(config_.limits, request));
  return ListPage(SessionId{}, true, request);
}

// A page has as many rows as fit into one answer. The broker adds up their bytes, and only these rows become messages.
Result<v1::ListResponse> ListVerbs::ListPage(SessionId session, bool everybody, const v1::ListRequest& request) const {
  ListFilter filter;
  filter.everybody = everybody;
  filter.ns = request.namespace_();
  filter.name_prefix = request.name_prefix();
  filter.ends = request.ends();
  filter.session = SessionId{request.session()};
  filter.page_token = request.page_token();
  filter.page_size =
      std::clamp<uint32_t>(request.page_size() == 0 ? kPageRowsMax : request.page_size(), 1, kPageRowsMax);
  filter.bytes_max = AnswerBytesMax(config_.limits) - kPageTokenBytes;
  v1::ListResponse list;
  const auto fill = [&](auto page, auto* rows) -> Status {
    if (!page.ok()) return page.status();
    for (const auto& row : page->rows) Fill(rows->Add(), row);
    list.set_next_page_token(std::move(page->next));
    return Ok();
  };
  Status filled;
  switch (request.kind()) {
    case v1::ListRequest::SESSIONS:
      filled = fill(broker_.ListSessions(session, filter), list.mutable_sessions());
      break;
    case v1::ListRequest::LEASES:
      filled = fill(broker_.ListLeases(session, filter), list.mutable_leases());
      break;
    case v1::ListRequest::NAMESPACES:
      filled = fill(broker_.ListNamespaces(session, filter), list.mutable_namespaces());
      break;
    case v1::ListRequest::CHANNELS:
      filled = fill(broker_.ListChannels(session, filter), list.mutable_channels());
      break;
    case v1::ListRequest::DEVICES:
      for (const DeviceFacts& device : broker_.Devices()) Fill(list.add_devices(), device);
      break;
    default:
      filled = fill(broker_.ListShares(session, filter), list.mutable_shares());
  }
  AB_RETURN_IF_ERROR(filled);
  return list;
}

Result<Answer> ListVerbs::Inspect(const Caller& caller, const v1::InspectRequest& request) {
  if (!caller.hears) return Answer{};
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_()));
  const ShareKey share = FromMessage(request.share());
  AB_RETURN_IF_ERROR(CheckShares(config_.limits, {&share, 1}));
  publishes_.ServeQueued(caller.session, request.namespace_());
  AB_ASSIGN_OR_RETURN(const auto inspected, broker_.Inspect(caller.session, request.namespace_(), share));
  v1::InspectResponse message;
  Fill(&message, inspected);
  size_t bytes = message.ByteSizeLong() + kOfferOverhead;
  for (const OfferRow& row : inspected.offers) {
    v1::Offer offer;
    Fill(&offer, row);
    bytes += offer.ByteSizeLong() + kOfferOverhead;
    if (bytes > AnswerBytesMax(config_.limits)) {
      message.set_offers_left_out(message.offers_left_out() + 1);
    } else {
      *message.add_offers() = std::move(offer);
    }
  }
  return AnswerOf(message);
}

}  // namespace arraybridge::daemon
