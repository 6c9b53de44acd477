// The verbs that only tell: of the broker itself, of what it has, and how much it does.
#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/service/message_limits.h"
#include "daemon/service/messages.h"
#include "daemon/service/verbs.h"
#include "proto/boundary/frame.h"

namespace arraybridge {
namespace {

constexpr size_t kPageTokenBytes = 512;
constexpr uint32_t kPageRowsMax = 512;  // before bytes are looked at

// So many of the rows fit into an answer with its page token; at least one.
template <class Rows>
size_t Fitting(const Rows& rows, size_t bytes_max) {
  constexpr size_t kRowOverhead = 8;  // tag and length
  size_t bytes = kPageTokenBytes;
  for (int i = 0; i < rows.size(); ++i) {
    bytes += rows[i].ByteSizeLong() + kRowOverhead;
    if (bytes > bytes_max) return static_cast<size_t>(std::max(i, 1));
  }
  return static_cast<size_t>(std::max(rows.size(), 1));
}

}  // namespace

v1::GetServerInfoResponse Verbs::GetServerInfo() const {
  v1::GetServerInfoResponse info;
  info.set_version(ARRAYBRIDGE_VERSION);
  const Token& broker_id = broker_.broker_id();
  info.set_broker_id(broker_id.data(), broker_id.size());
  info.set_protocol_min(kProtocolVersion);
  info.set_protocol_max(kProtocolVersion);
  info.set_boot_id(here_.boot_id);
  const auto uptime = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_);
  info.set_uptime_ms(static_cast<uint64_t>(uptime.count()));
  Fill(info.mutable_limits(), config_);
  for (const DeviceFacts& device : broker_.Devices()) Fill(info.add_devices(), device);
  info.add_capabilities("tickets");
  if (config_.spin.count() > 0) info.add_capabilities("mailbox");
  if (config_.cuda_events) info.add_capabilities("events");
  info.set_draining(draining());
  info.set_pid_namespace(here_.pid_namespace);
  info.set_no_gpu(no_gpu_.why);
  if (!no_gpu_.why.empty()) info.set_no_gpu_cause(static_cast<v1::RefusalCause>(no_gpu_.cause));
  return info;
}

Result<Answer<v1::GetStatsResponse>> Verbs::GetStats(const Caller& caller, const v1::GetStatsRequest&) {
  if (!caller.hears) return Answer<v1::GetStatsResponse>{};
  return Answer<v1::GetStatsResponse>{Stats(), {}};
}

v1::GetStatsResponse Verbs::Stats(const Snapshot& snapshot) const {
  v1::GetStatsResponse stats;
  Fill(&stats, snapshot);
  stats.set_waiting(line_.waiting());
  for (const DeviceFacts& device : broker_.Devices()) Fill(stats.add_devices(), device);
  stats.set_refusals_total(refusals_.load(std::memory_order_relaxed));
  stats.set_sessions_cut_total(cuts_.load(std::memory_order_relaxed));
  return stats;
}

Result<Answer<v1::ListResponse>> Verbs::List(const Caller& caller, const v1::ListRequest& request) {
  if (!caller.hears) return Answer<v1::ListResponse>{};
  AB_RETURN_IF_ERROR(CheckList(config_.limits, request));
  DrainRings(caller.session,
             request.namespace_().empty() ? std::nullopt : std::optional<std::string_view>(request.namespace_()));
  auto listed = Listed(caller.session, false, request);
  if (!listed.ok()) return listed.status();
  return Answer<v1::ListResponse>{*std::move(listed), {}};
}

Result<v1::ListResponse> Verbs::ListEverybodys(const v1::ListRequest& request) {
  AB_RETURN_IF_ERROR(CheckList(config_.limits, request));
  return Listed(SessionId{}, true, request);
}

// Rows are as large as their shares' specs: a page holds as many as fit into one answer.
Result<v1::ListResponse> Verbs::Listed(SessionId session, bool everybody, const v1::ListRequest& request) {
  ListFilter filter;
  filter.everybody = everybody;
  filter.ns = request.namespace_();
  filter.name_prefix = request.name_prefix();
  filter.session = SessionId{request.session()};
  filter.page_token = request.page_token();
  filter.page_size =
      std::clamp<uint32_t>(request.page_size() == 0 ? kPageRowsMax : request.page_size(), 1, kPageRowsMax);
  size_t fitting = 1;
  const auto fill = [&](auto page, auto* rows, v1::ListResponse* response) -> Status {
    if (!page.ok()) return page.status();
    for (const auto& row : page->rows) Fill(rows->Add(), row);
    response->set_next_page_token(std::move(page->next));
    fitting = Fitting(*rows, AnswerBytesMax(config_.limits));
    return Ok();
  };
  for (;; filter.page_size = std::min<size_t>(fitting, filter.page_size - 1)) {
    v1::ListResponse answer;
    v1::ListResponse* list = &answer;
    Status filled;
    switch (request.kind()) {
      case v1::ListRequest::SESSIONS:
        filled = fill(broker_.ListSessions(session, filter), list->mutable_sessions(), list);
        break;
      case v1::ListRequest::LEASES:
        filled = fill(broker_.ListLeases(session, filter), list->mutable_leases(), list);
        break;
      case v1::ListRequest::NAMESPACES:
        filled = fill(broker_.ListNamespaces(session, filter), list->mutable_namespaces(), list);
        break;
      case v1::ListRequest::CHANNELS:
        filled = fill(broker_.ListChannels(session, filter), list->mutable_channels(), list);
        break;
      case v1::ListRequest::DEVICES:
        for (const DeviceFacts& device : broker_.Devices()) Fill(list->add_devices(), device);
        break;
      default:
        filled = fill(broker_.ListShares(session, filter), list->mutable_shares(), list);
    }
    AB_RETURN_IF_ERROR(filled);
    if (list->ByteSizeLong() <= AnswerBytesMax(config_.limits) || filter.page_size == 1) return answer;
  }
}

}  // namespace arraybridge
