// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/arena_verbs.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/at_limit.h"
#include "daemon/service/telemetry/size_text.h"
#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"

namespace arraybridge::daemon {
namespace {

// The size to which clients' arenas grow. Populating so much takes tens of milliseconds; larger ones have a lane.
constexpr uint64_t kShortBytesMax = 64ull << 20;

// The interval of progress messages while memory is populated: shorter than any sensible timeout.
constexpr std::chrono::milliseconds kProgressEvery{100};

// Whether the device or the system has no memory left. Other programs may free it without telling the broker.
bool IsMachines(const Status& refusal) {
  return refusal.reason() == "SYSTEM_MEMORY" || refusal.reason() == "CUDA_ERROR_OUT_OF_MEMORY";
}

// Whether other users may release the missing memory. The limit of a file's size never rises, so waiting does not help.
bool MayBeRoom(const Status& refusal) {
  return refusal.code() == Code::kResourceExhausted && refusal.reason() != "FILE_SIZE_LIMIT";
}

Lane LaneOf(uint64_t size) { return size > kShortBytesMax ? Lane::kLong : Lane::kShort; }

}  // namespace

// An Allocate from its arrival to its answer. The thread of its lane tries it; the thread for deadlines expires it.
class ArenaVerbs::Pending {
 public:
  Pending(ArenaVerbs& verbs, const Caller& caller, const wire::AllocateRequest& request, Reply reply)
      : verbs_(verbs),
        caller_(caller),
        ns_(request.namespace_),
        device_(DeviceOf(request.device)),
        size_(request.size),
        timeout_ms_(caller.TimeoutOf(request.timeout_ms)),
        reply_(std::move(reply)) {}

  // Prefers the caller's own returned ranges to fresh memory, because they are populated. Ranges that are too small
  // stay for the answer, whatever the answer is: each range is returned once.
  Deliver Try(bool first) {
    if (verbs_.admission_.draining()) return nullptr;
    verbs_.reclaimer_.PollHazards(Sweeper::Look::kAll);
    const auto more = verbs_.handover_.Returned(caller_);
    returned_.insert(returned_.end(), more.begin(), more.end());
    if (std::ranges::any_of(returned_, [this](const auto& range) { return range.size >= size_; })) {
      return [this] { AnswerReturned(); };
    }
    if (!first) return nullptr;
    auto arena = Allocate();
    if (arena.ok()) return DeliveryOf(Granted(*std::move(arena)));
    if (!MayBeRoom(arena.status())) return DeliveryOf(arena.status());
    refusal_ = arena.status();
    if (timeout_ms_ > 0) verbs_.tiers_.MakeRoom(caller_, ns_, size_, refusal_);
    if (timeout_ms_ > 0 && IsMachines(refusal_)) verbs_.reclaimer_.ServeMemoryLater(LaneOf(size_));
    return nullptr;
  }

  // Other users cannot release memory of the caller's own quota.
  Lack lack() const {
    const bool shared = refusal_.reason() == "DEVICE_FULL" || IsMachines(refusal_);
    const auto owner = verbs_.broker_.OwnerOf(caller_.session, ns_, Right::kWrite);
    return shared || (owner.ok() && *owner == kSharedByUsers) ? Lack::kShared : Lack::kOwn;
  }

  void Expire() {
    if (!returned_.empty()) {
      AnswerReturned();  // only the client knows whether they suffice once joined with their neighbours
      return;
    }
    if (const Status draining = verbs_.admission_.CheckNotDraining(); !draining.ok()) return reply_(draining);
    // The quota of the namespace, and not limits.bytes_per_uid.
    const bool full = refusal_.reason() == "QUOTA_EXCEEDED" && LimitIn(refusal_).empty();
    if (!refusal_.ok()) return reply_(full ? WithHolders(refusal_) : refusal_);
    reply_(ResourceExhausted(verbs_.admission_.TimedOut(timeout_ms_), "no room for ", size_,
                             " bytes, behind other requests of the namespace: ", Numbers())
               .Because("WAITED_IN_VAIN"));
  }

 private:
  // The refusal, with what has most of the namespace's bytes and how each is freed. Names are no part of a command,
  // because users who share a namespace choose them.
  Status WithHolders(const Status& refusal) const {
    const auto use = verbs_.broker_.UseOf(caller_.session, NamespaceNameOf(ns_));
    if (!use.ok()) return refusal;
    const NamespaceRow& row = use->row;
    std::vector<std::pair<uint64_t, std::string>> parts;
    for (const NamespaceUse::Part& part : use->largest) {
      parts.emplace_back(part.bytes, part.is_channel ? Concat("in channel '", part.name, "' wait ",
                                                              SizeText(part.bytes), " (arraybridgectl channel drain)")
                                                     : Concat("share '", part.name, "' has ", SizeText(part.bytes),
                                                              " (arraybridgectl withdraw)"));
    }
    parts.emplace_back(row.held_bytes(), Concat("processes still read ", SizeText(row.held_bytes()),
                                                " without a name (they must drop them)"));
    parts.emplace_back(row.unused_bytes(),
                       Concat(SizeText(row.unused_bytes()), " are free in arenas of processes, or in direct channels"));
    std::erase_if(parts, [](const auto& part) { return part.first == 0; });
    std::ranges::stable_sort(parts, std::ranges::greater{}, &std::pair<uint64_t, std::string>::first);
    std::string text;
    for (const auto& [bytes, part] : parts) text += (text.empty() ? "" : "; ") + part;
    const uint64_t left = row.quota_bytes - std::min(row.quota_bytes, row.charged_bytes);
    Status full = ResourceExhausted("namespace '", row.ns, "' has no room for ", size_, " bytes (", SizeText(size_),
                                    "): ", left, " are left of its quota of ", SizeText(row.quota_bytes), ". ", text)
                      .Because(refusal.reason());
    for (const auto& [key, value] : refusal.metadata()) full = std::move(full).With(key, value);
    return full;
  }

  // The memory in use, for a request that was never the first in line.
  std::string Numbers() const {
    std::string text = Concat(verbs_.line_.waiting(), " requests are waiting");
    ListFilter of_namespace;
    of_namespace.ns = NamespaceNameOf(ns_);
    of_namespace.page_size = 1;
    const auto page = verbs_.broker_.ListNamespaces(caller_.session, of_namespace);
    if (page.ok() && !page->rows.empty()) {
      const NamespaceRow& row = page->rows.front();
      text += Concat(", namespace '", row.ns, "' has ", row.charged_bytes, " of ", row.quota_bytes, " bytes in use");
    }
    for (const DeviceFacts& facts : verbs_.broker_.Devices()) {
      if (facts.device.type != device_.type || facts.device.id != device_.id) continue;
      text += Concat(", the device ", facts.allocated_bytes, " of ", facts.capacity_bytes);
    }
    return text;
  }

  // Called after every few megabytes.
  void TellProgress() {
    const auto now = Clock::now();
    if (!caller_.progress || now - progress_sent_ < kProgressEvery) return;
    progress_sent_ = now;
    caller_.progress();
  }

  Result<AllocatedArena> Allocate() {
    progress_sent_ = Clock::now();
    const AllocateCall call{ns_, device_, size_, [this] { TellProgress(); }, caller_.request};
    auto arena = verbs_.broker_.Allocate(caller_.session, call);
    if (arena.ok() || arena.status().code() != Code::kResourceExhausted) return arena;
    if (verbs_.reclaimer_.sweeper().SweepNow().freed_bytes == 0) return arena;
    arena = verbs_.broker_.Allocate(caller_.session, call);
    // a request in the other lane may have been refused while this one swept
    verbs_.reclaimer_.ServeMemorySoon(Other(LaneOf(size_)));
    return arena;
  }

  Deliver DeliveryOf(Result<Answer> result) {
    const bool allocated = result.ok();
    return [this, allocated, deliver = Delivery(reply_, std::move(result))] {
      deliver();
      if (allocated && verbs_.allocated_) verbs_.allocated_();
    };
  }

  Result<Answer> Granted(AllocatedArena arena) {
    wire::AllocateResponse response{.returned = std::exchange(returned_, {})};
    auto answer = verbs_.handover_.HandOver(caller_, std::move(response), arena.handle, Access::kWrite);
    if (answer.ok()) return answer;
    // Without a ticket no process can ever map the arena.
    static_cast<void>(verbs_.broker_.Release(caller_.session, {}, std::span(&arena.handle.arena, 1), {}));
    verbs_.reclaimer_.sweeper().Soon();
    return answer;
  }

  void AnswerReturned() { reply_(AnswerOf(wire::AllocateResponse{.returned = std::exchange(returned_, {})})); }

  ArenaVerbs& verbs_;
  const Caller caller_;
  const std::string ns_;
  const Device device_;
  const uint64_t size_;
  const uint64_t timeout_ms_;
  const Reply reply_;
  std::vector<wire::Range> returned_;
  Status refusal_;
  Clock::time_point progress_sent_{};  // time of the last progress message
};

Served ArenaVerbs::Allocate(const Caller& caller, const wire::AllocateRequest& request, std::string_view bytes,
                            const Later& later) {
  const auto check = [&]() -> Status {
    AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
    AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_));
    return broker_.CheckAllocate(caller.session, {request.namespace_, DeviceOf(request.device), request.size});
  };
  const Status checked = check();
  auto waits = checked.ok() ? admission_.WaiterOf(caller, bytes.size()) : Result<Waiter>(checked);
  if (!waits.ok()) return {waits.status()};

  const Reply reply = later();
  auto pending = std::make_shared<Pending>(*this, caller, request, reply);
  Waiter waiter = *std::move(waits);
  const uint32_t uid = waiter.uid;
  const uint64_t timeout_ms = caller.TimeoutOf(request.timeout_ms);
  waiter.lane = LaneOf(request.size);
  if (timeout_ms > 0) waiter.deadline = admission_.DeadlineOf(timeout_ms);
  waiter.retry = [pending](bool first) { return pending->Try(first); };
  waiter.lack = [pending] { return pending->lack(); };
  waiter.expire = [pending] { pending->Expire(); };
  const auto place = line_.WaitForMemory(uid, NamespaceNameOf(request.namespace_), std::move(waiter));
  if (!place.ok()) return reply(place.status()), Served{};
  // The session may have ended since its uid was read, and its waiters may have been dropped already.
  if (const auto lives = broker_.UidOf(caller.session); !lives.ok()) {
    line_.Cancel(*place);
    return {};
  }
  reclaimer_.ServeMemorySoon(LaneOf(request.size));
  return {{}, *place};
}

void ArenaVerbs::TakeBackAllocated(const Caller& caller, std::string_view granted) {
  const auto message = wire::Decode<wire::AllocateResponse>(granted);
  if (!message.ok()) return;  // this daemon wrote it
  std::vector<RangeOfArena> returned;
  for (const wire::Range& range : message->returned) {
    returned.push_back({ArenaId{range.arena}, range.offset, range.size});
  }
  broker_.KeepReturned(caller.session, returned);
  if (!message->handle) return;
  static_cast<void>(broker_.Release(caller.session, {}, {&message->handle->arena, 1}, {}));
  reclaimer_.sweeper().Soon();
}

Result<Answer> ArenaVerbs::Mapped(const Caller& caller, const wire::MappedRequest& request) {
  if (request.direct_channel_of != 0) return channels_.DirectChannelMapped(caller, request);
  const auto seal = [&] {
    if (request.arena != 0) return broker_.Mapped(caller.session, ArenaId{request.arena});
    if (!request.hazard_page_of.empty()) return broker_.HazardPageMapped(caller.session, request.hazard_page_of);
    return broker_.Mapped(caller.session, ArenaId{});
  };
  AB_RETURN_IF_ERROR(seal());
  return Answer{};
}

Result<Answer> ArenaVerbs::Export(const Caller& caller, const wire::ExportRequest& request) {
  auto handle = broker_.Export(caller.session, ArenaId{request.arena}, request.arena_generation,
                               ChannelEndId{request.direct_channel_of});
  if (!handle.ok()) return handle.status();
  return handover_.HandOver(caller, wire::ExportResponse{}, *handle, Access::kRead);
}

Result<Answer> ArenaVerbs::Redeem(const Caller& caller, const wire::RedeemRequest& request) {
  AB_ASSIGN_OR_RETURN(auto redeemed, broker_.Redeem(caller.session, Octets(request.token)));
  Answer answer = AnswerOf(wire::RedeemResponse{.handle = ToWire(redeemed.handle), .writable = redeemed.writable});
  answer.descriptor = PassedFd(std::move(redeemed.handle.descriptor), redeemed.handle.kind);
  return answer;
}

Result<Answer> ArenaVerbs::Browse(const Caller& caller, const wire::BrowseRequest& request) {
  if (!caller.hears) return Answer{};
  AB_RETURN_IF_ERROR(admission_.CheckNotDraining());
  AB_RETURN_IF_ERROR(CheckNamespace(config_.limits, request.namespace_));
  if (request.part == wire::BrowseRequest::Part::kDirectChannel) {
    auto exported = broker_.ExportDirectChannel(caller.session, ChannelEndId{request.channel});
    if (!exported.ok()) return exported.status();
    wire::BrowseResponse response{.sender_process_id = exported->sender_process_id};
    if (exported->sender != nullptr) response.sender = *exported->sender;
    Answer answer = AnswerOf(response);
    answer.descriptor = PassedFd(std::move(exported->files), FdKind::kPages);
    return answer;
  }
  AB_ASSIGN_OR_RETURN(auto descriptors, ExportPages(caller, request));
  return Answer{{}, PassedFd(std::move(descriptors), FdKind::kPages)};
}

Result<std::vector<UniqueFd>> ArenaVerbs::ExportPages(const Caller& caller, const wire::BrowseRequest& request) {
  using Part = wire::BrowseRequest::Part;
  if (request.part == Part::kQueue) return broker_.OpenQueueOf(caller.session, request.namespace_);
  AB_ASSIGN_OR_RETURN(auto one, request.part == Part::kHazardPage
                                    ? broker_.ExportHazardPage(caller.session, request.namespace_)
                                    : broker_.ExportCatalogue(caller.session, request.namespace_));
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(std::move(one));
  return descriptors;
}

void ArenaVerbs::TakeBackExported(const Caller& caller, std::string_view granted) {
  const auto message = wire::Decode<wire::ExportResponse>(granted);
  if (!message.ok() || !message->handle) return;  // this daemon wrote it
  static_cast<void>(broker_.Release(caller.session, {}, {}, {&message->handle->arena, 1}));
}

}  // namespace arraybridge::daemon
