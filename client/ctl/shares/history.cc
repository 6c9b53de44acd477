// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/shares/history.h"

#include <algorithm>

namespace arraybridge::ctl {
namespace {

bool Wants(const v1::WatchRequest& watch, v1::EventKind kind) {
  return watch.kinds().empty() || std::ranges::find(watch.kinds(), kind) != watch.kinds().end();
}

uint64_t TimeOf(uint64_t age_ms) {
  const auto then = std::chrono::system_clock::now() - std::chrono::milliseconds(age_ms);
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(then.time_since_epoch()).count());
}

v1::Event BeginOf(const v1::SessionInfo& info) {
  v1::Event event;
  event.set_kind(v1::EVENT_KIND_SESSION_BEGIN);
  event.set_time_ns(TimeOf(info.age_ms()));
  event.set_session(info.session());
  event.set_process_id(info.process_id());
  event.set_uid(info.uid());
  event.set_note(info.client());
  return event;
}

v1::Event PublishOf(const v1::ShareInfo& info) {
  const v1::Share& share = info.share();
  v1::Event event;
  event.set_kind(v1::EVENT_KIND_PUBLISH);
  event.set_time_ns(TimeOf(info.age_ms()));
  event.set_namespace_(share.namespace_());
  event.set_name(share.name());
  event.set_share(share.id());
  event.set_generation(share.generation());
  event.set_session(info.maker());
  event.set_process_id(info.maker_process_id());
  event.set_uid(info.maker_uid());
  event.set_bytes(share.handle().size());
  *event.mutable_device() = share.handle().device();
  return event;
}

}  // namespace

Result<History> History::Since(std::chrono::milliseconds age, const v1::WatchRequest& watch, Connection& connection) {
  History history;
  const auto age_ms = static_cast<uint64_t>(age.count());
  v1::ListRequest request;
  if (Wants(watch, v1::EVENT_KIND_PUBLISH)) {
    request.set_kind(v1::ListRequest::SHARES);
    request.set_namespace_(watch.namespace_());
    request.set_name_prefix(watch.name_prefix());
    AB_ASSIGN_OR_RETURN(const auto listed, connection.List(request));
    for (const v1::ShareInfo& info : listed.shares()) {
      if (info.age_ms() <= age_ms) history.events_.push_back(PublishOf(info));
    }
  }
  if (Wants(watch, v1::EVENT_KIND_SESSION_BEGIN) && watch.name_prefix().empty()) {
    request.Clear();
    request.set_kind(v1::ListRequest::SESSIONS);
    AB_ASSIGN_OR_RETURN(const auto listed, connection.List(request));
    for (const v1::SessionInfo& info : listed.sessions()) {
      const bool own = info.session() == connection.session();
      if (info.age_ms() <= age_ms && !own) history.events_.push_back(BeginOf(info));
    }
  }
  for (const v1::Event& event : history.events_) history.begun_.insert(BeginningOf(event));
  std::ranges::stable_sort(history.events_, {}, &v1::Event::time_ns);
  return history;
}

}  // namespace arraybridge::ctl
