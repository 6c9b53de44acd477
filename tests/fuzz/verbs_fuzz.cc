// SPDX-License-Identifier: Apache-2.0
// Two sessions send any requests in any order through the real Verbs to a real Broker with host memory. After they have
// ended, no session, lease or ticket may be left.
//
// An input is a list of steps: one byte (verb; bit 6: the gRPC door; bit 7: the other session), two bytes of length, a
// serialised request. A generation or ticket of 0 stands for the last one that the session received, because they are
// random and a fuzzer would not guess them. Verbs 17 and 20 are not requests: the session writes into its submission
// queue, and into its page of a direct channel (see Queue, DirectChannel).
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/memory/host/host_backend.h"
#include "daemon/memory/shared_pages/session_queue.h"
#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/frame.h"
#include "tests/fuzz/input.h"
#include "tests/unit/boundary/direct_entries.h"
#include "tests/unit/memory/queue_client.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kCapacityBytes = 1 << 20;
constexpr size_t kStepsMost = 64;

Config SmallConfig() {
  Config config;
  config.host_capacity_bytes = kCapacityBytes;
  config.host_cache_bytes = 0;
  config.huge_pages = false;
  config.limits.arenas_per_session = 4;
  config.limits.shares_per_namespace = 8;
  config.limits.leases_per_session = 16;
  config.limits.tickets_per_session = 4;
  config.limits.namespaces = 4;
  config.limits.requests_per_session = 4;
  config.limits.channels_per_namespace = 3;
  config.limits.members_per_channel = 3;
  config.limits.channel_capacity_max = 3;
  config.limits.watchers = 3;
  config.limits.events_per_watcher = 5;
  config.orphan_grace = std::chrono::milliseconds(0);
  return config;
}

// Values that a session has received and may use in a request. Answers fill it in, also on other threads.
struct Memory {
  std::mutex mutex;
  uint64_t arena = 0;
  uint64_t generation = 0;
  std::string ticket;

  void Learn(Verb verb, const std::string& answer) {
    const std::lock_guard lock(mutex);
    if (verb == Verb::kAllocate) {
      v1::AllocateResponse allocated;
      AB_CHECK(allocated.ParseFromString(answer));
      if (allocated.has_handle()) arena = allocated.handle().arena(), generation = allocated.handle().generation();
      if (allocated.has_ticket()) ticket = allocated.ticket().token();
    } else if (verb == Verb::kAcquire) {
      v1::AcquireResponse acquired;
      AB_CHECK(acquired.ParseFromString(answer));
      if (acquired.tickets_size() > 0) ticket = acquired.tickets(0).token();
    }
  }
};

// A direct channel's page that only its session writes, of either side.
class DirectPage {
 public:
  explicit DirectPage(const UniqueFd& file) {
    struct stat info {};
    AB_CHECK(::fstat(file.get(), &info) == 0);
    bytes_ = static_cast<uint64_t>(info.st_size);
    void* const base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    AB_CHECK(base != MAP_FAILED);
    base_ = static_cast<char*>(base);
  }
  ~DirectPage() { ::munmap(base_, bytes_); }
  DirectPage(const DirectPage&) = delete;
  DirectPage& operator=(const DirectPage&) = delete;

  uint64_t bytes() const { return bytes_; }
  // The number of entries of a producer's page; 0 for a consumer's page.
  uint64_t entries() const { return (bytes_ - sizeof(direct_channel::ProducerPage)) / sizeof(direct_channel::Entry); }
  // Entries that it says it has written, or taken.
  uint64_t& count() {
    auto& progress = *reinterpret_cast<spsc::Progress*>(base_);
    return entries() > 0 ? progress.head : progress.taken;
  }
  void Write(const direct_channel::Header& said, std::string_view description) {
    direct_channel::WriteEntry(*reinterpret_cast<direct_channel::ProducerPage*>(base_), entries(), said, description);
  }
  void Scribble(uint64_t at, std::string_view with) {
    at %= bytes_;
    std::memcpy(base_ + at, with.data(), std::min(with.size(), bytes_ - at));
  }

 private:
  uint64_t bytes_ = 0;
  char* base_ = nullptr;
};

class Stranger {
 public:
  explicit Stranger(Verbs& verbs) : verbs_(verbs) { Open({}); }
  ~Stranger() { End(); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void Send(uint8_t verb, Door door, std::string_view payload) {
    caller_.door = door;
    switch (verb) {
      case 0:
        return Open(payload);
      case 1:
        return Serve(Verb::kGetServerInfo, payload);
      case 2:
        Serve(Verb::kAllocate, payload);
        // Memory is allocated on the slow thread, and the next step may use it.
        return verbs_.WaitIdle(Clock::now() + std::chrono::seconds(10));
      case 3:
        return Serve(Verb::kMapped, payload);
      case 4:
        return Serve(Verb::kPublish, Known<v1::PublishRequest>(payload));
      case 5:
        return Serve(Verb::kAcquire, payload);
      case 6:
        return Serve(Verb::kExport, Known<v1::ExportRequest>(payload));
      case 7:
        return Serve(Verb::kRelease, payload);
      case 8:
        return Serve(Verb::kWithdraw, payload);
      case 9:
        return Serve(Verb::kList, payload);
      case 10:
        return Serve(Verb::kGetStats, payload);
      case 11: {
        v1::RedeemRequest request;
        request.set_token(Ticket());
        return Serve(Verb::kRedeem, payload.empty() ? request.SerializeAsString() : payload);
      }
      case 12:
        return verbs_.Cancel(last_waiter_);
      case 14:
        return Serve(Verb::kOpenChannel, payload);
      case 15:
        return Serve(Verb::kCloseChannel, payload);
      case 16:
        return Serve(Verb::kReceive, payload);
      case 17:
        return Queue(payload);
      case 20:
        return DirectChannel(payload);
      case 18:
        return Serve(Verb::kWatch, payload);
      case 19:
        return Serve(Verb::kInspect, payload);
      case 21:
        return Serve(Verb::kClaim, payload);
      case 22:
        return Serve(Verb::kTier, payload);
      case 13: {
        const auto request = wire::Decode<wire::BrowseRequest>(payload);
        // The one queue of a session is for verb 17.
        if (request.ok() && request->part != wire::BrowseRequest::Part::kQueue) Serve(Verb::kBrowse, payload);
        return;
      }
      default:
        End();
        Open({});
    }
  }

 private:
  // As a door does.
  void Serve(Verb verb, std::string_view request) {
    const auto later = [&]() -> Reply {
      return [memory = memory_, verb](Result<Answer> answer) {
        if (answer.ok()) memory->Learn(verb, answer->message);
      };
    };
    const auto served = verbs_.Serve(caller_, verb, request, later);
    if (!served.ok()) return;
    last_waiter_ = served->waiter;
    if (served->now && served->now->ok()) memory_->Learn(verb, (**served->now).message);
  }

  // With the generation of an arena that the session knows.
  template <class Request>
  std::string Known(std::string_view payload) {
    Request request;
    const bool parsed = request.ParseFromArray(payload.data(), static_cast<int>(payload.size()));
    if (!parsed || request.arena_generation() != 0) return std::string(payload);
    request.set_arena_generation(Generation(request.arena()));
    return request.SerializeAsString();
  }

  void Open(std::string_view payload) {
    auto request = wire::Decode<wire::OpenSessionRequest>(payload);
    if (!request.ok()) return;
    if (request->protocol_max == 0) request->protocol_min = request->protocol_max = kProtocolVersion;
    Peer peer;
    peer.client = request->client;
    peer.door = caller_.door;
    const auto opened =
        request->join.empty() ? verbs_.sessions.OpenSession(*request, peer) : verbs_.sessions.Join(*request, peer);
    if (!opened.ok()) return;
    End();
    caller_.session = SessionId{opened->session()};
  }

  // First byte 0: writes an unwaited publish, as a client does; 1: writes a request with the verb and the flags of the
  // next two bytes; 2: overwrites the submission queue with the rest, at four times the next two bytes; 3: the door
  // takes up to three requests of each kind; 4: the session reads its completions. After each case a request looks for
  // a name.
  void Queue(std::string_view payload) {
    if (queue_ == nullptr && caller_.session != SessionId{}) OpenQueue();
    if (queue_ == nullptr || payload.empty()) return;
    Input input(reinterpret_cast<const uint8_t*>(payload.data()), payload.size());
    switch (input.Take<uint8_t>()) {
      case 0:
        SubmitPublish(input.TakeRest());
        break;
      case 1: {
        const auto verb = input.Take<uint8_t>();
        const auto flags = input.Take<uint8_t>();
        const std::string_view request = input.TakeRest().substr(0, session_queue::Format::kPayloadBytesMax);
        queue_->Submit(Verb{verb}, request, ++last_request_, flags);
        break;
      }
      case 2: {
        const uint64_t at = uint64_t{input.Take<uint16_t>()} * 4;
        Scribble(at, input.TakeRest());
        break;
      }
      case 3:
        TakeRequests();
        break;
      default:
        while (queue_->Reap()) continue;
    }
    v1::AcquireRequest looks;
    looks.add_shares()->set_name("never");
    Serve(Verb::kAcquire, looks.SerializeAsString());
  }

  // Opens the queue as the local door does.
  void OpenQueue() {
    const auto answer = verbs_.arenas.Browse(caller_, {.part = wire::BrowseRequest::Part::kQueue});
    const auto opened = verbs_.publishes.FindQueue(caller_.session);
    if (!answer.ok() || !opened) return;
    queue_ = std::make_unique<QueueClient>(answer->descriptor, answer->descriptor.more().front());
    AB_CHECK(opened->queue->Seal([] {}).ok());
  }

  // Overwrites any part of the submission queue.
  void Scribble(uint64_t at, std::string_view with) {
    session_queue::Page& page = queue_->own();
    at %= sizeof page;
    std::memcpy(reinterpret_cast<char*>(&page) + at, with.data(), std::min<uint64_t>(with.size(), sizeof page - at));
  }

  void SubmitPublish(std::string_view payload) {
    const std::string_view message = payload.substr(0, session_queue::Format::kPayloadBytesMax);
    const std::string known = Known<v1::PublishRequest>(message);
    queue_->Publish(known.size() <= session_queue::Format::kPayloadBytesMax ? known : std::string(message),
                    ++last_request_);
  }

  // Takes requests as the local door does: publishes in order with the other requests, each of which gets a completion
  // of some length.
  void TakeRequests() {
    const auto opened = verbs_.publishes.FindQueue(caller_.session);
    if (!opened) return;
    SessionQueue& queue = *opened->queue;
    session_queue::Entry entry;
    for (int turn = 0; turn < 3 && queue.HasRequest(); ++turn) {
      const auto taken = queue.Take(entry);
      if (!taken.ok()) return;
      if (!*taken) {
        verbs_.publishes.ServePublishes(*opened, 3, SessionQueue::Others::kStop);
        continue;
      }
      const session_queue::Header header = session_queue::HeaderOf(entry);
      const std::string_view payload = session_queue::PayloadOf(entry);
      AB_CHECK(payload.size() <= session_queue::Format::kPayloadBytesMax);
      if ((header.flags & session_queue::kUnwaited) == 0) (void)queue.Complete(header, payload);
    }
    queue.Finish();
  }

  // Takes an end of a channel, then 0: maps its page of the direct channel, if it gets one; 1: writes an entry, as a
  // sender does; 2: takes or sends one more; 3: overwrites the page with the rest; otherwise ends the direct channel.
  void DirectChannel(std::string_view payload) {
    Input input(reinterpret_cast<const uint8_t*>(payload.data()), payload.size());
    const auto end = input.Take<uint8_t>();
    const auto what = input.Take<uint8_t>();
    if (what == 0) return MapDirect(end);
    if (what > 3) {
      v1::ReceiveRequest leaves;
      leaves.set_channel(end);
      leaves.set_revoke(true);
      return Serve(Verb::kReceive, leaves.SerializeAsString());
    }
    if (direct_ == nullptr) return;
    if (what == 1 && direct_->entries() > 0) {
      direct_channel::Header said;
      said.arena = input.Take<uint8_t>();
      said.generation = Generation(said.arena);
      said.offset = uint64_t{input.Take<uint8_t>()} * 256;
      said.size = input.Take<uint16_t>();
      said.bit = input.Take<uint8_t>();
      return direct_->Write(said, input.TakeRest().substr(0, direct_channel::Format::kDescriptionBytesMax));
    }
    if (what == 2) return (void)++direct_->count();
    const auto at = input.Take<uint16_t>();
    direct_->Scribble(at, input.TakeRest());
  }

  // The number of a direct channel, from its control block.
  static uint64_t NumberIn(const UniqueFd& control) {
    direct_channel::ControlBlock block{};
    AB_CHECK(::pread(control.get(), &block, sizeof block, 0) == sizeof block);
    return block.number;
  }

  void MapDirect(uint64_t end) {
    const wire::BrowseRequest asks{.part = wire::BrowseRequest::Part::kDirectChannel, .channel = end};
    const auto own = verbs_.arenas.Browse(caller_, asks);
    if (!own.ok()) return;
    direct_ = std::make_unique<DirectPage>(own->descriptor);
    v1::MappedRequest mapped;
    mapped.set_direct_channel_of(end);
    mapped.set_direct_channel_number(NumberIn(own->descriptor.more()[direct_channel::kControl - 1]));
    Serve(Verb::kMapped, mapped.SerializeAsString());
  }

  void End() {
    queue_.reset();
    direct_.reset();
    if (caller_.session != SessionId{}) verbs_.sessions.EndSession(caller_.session);
    caller_.session = {};
  }

  uint64_t Generation(uint64_t arena) {
    const std::lock_guard lock(memory_->mutex);
    return arena == memory_->arena ? memory_->generation : 0;
  }
  std::string Ticket() {
    const std::lock_guard lock(memory_->mutex);
    return memory_->ticket;
  }

  Verbs& verbs_;
  Caller caller_;
  WaiterId last_waiter_{};
  std::unique_ptr<QueueClient> queue_;  // the queue of this session
  uint64_t last_request_ = 0;
  std::unique_ptr<DirectPage> direct_;  // the page that it has mapped last
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
};

void ServeAll(Input input) {
  const Config config = SmallConfig();
  const auto backend = MakeHostBackend({kCapacityBytes, false});
  Broker broker(config, {backend.get()});
  Verbs verbs(config, broker, [] {});
  {
    Stranger one(verbs);
    Stranger other(verbs);
    for (size_t step = 0; step < kStepsMost && !input.empty(); ++step) {
      const auto what = input.Take<uint8_t>();
      const auto size = input.Take<uint16_t>();
      const Door door = (what & 0x40) != 0 ? Door::kGrpc : Door::kLifeline;
      ((what & 0x80) != 0 ? other : one).Send((what & 0x3f) % 24, door, input.TakeBytes(size));
    }
  }
  verbs.WaitIdle(Clock::now() + std::chrono::seconds(10));
  const Snapshot ledger = broker.TakeSnapshot();
  AB_CHECK(ledger.sessions == 0 && ledger.leases == 0 && ledger.tickets == 0 && ledger.watchers == 0);
  AB_CHECK(ledger.queued_shares <=
           config.limits.channels_per_namespace * config.limits.namespaces * config.limits.channel_capacity_max);
  AB_CHECK(ledger.charged_bytes <= kCapacityBytes);
}

}  // namespace
}  // namespace arraybridge::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = (google::protobuf::SetLogHandler(nullptr), true);
  static_cast<void>(quiet);
  arraybridge::daemon::ServeAll(arraybridge::Input(data, size));
  return 0;
}
