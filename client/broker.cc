#include <arraybridge/broker.h>

#include <algorithm>
#include <atomic>

#include "client/acquire.h"
#include "client/arena.h"
#include "client/connection.h"
#include "client/fork_guard.h"
#include "client/placement.h"

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The broker decides when a wait is over; this side only watches that it answers.
constexpr milliseconds kAnswerGrace{1000};

// Ids begin anew with each life of the broker: those of another one would name somebody else's shares.
Status CheckLife(const Session& session, std::span<const ShareRef> refs) {
  for (const ShareRef& ref : refs) {
    if (ref.id == 0 || ref.broker_id.empty() || ref.broker_id == session.server().info.broker_id) continue;
    return NotFound("share ", ref.id, " was of another life of the broker");
  }
  return Ok();
}

}  // namespace

// The Connection of this process. A forked child never touches its parent's: it leaks it, since arrays of the parent
// point into it, and makes one of its own when it needs one.
class Broker::Core : public ForkParticipant {
 public:
  explicit Core(Options options) : options_(std::move(options)) { JoinForkGuard(this); }
  ~Core() override { LeaveForkGuard(this); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  const Options& options() const { return options_; }
  Deadline Timeout() const { return steady_clock::now() + options_.timeout; }

  // Room for these on the device, which another process may have named.
  Result<Placement> Room(const Device& device, std::vector<View> arrays, const PlaceOptions& options);

  std::shared_ptr<Connection> connection() {
    if (auto known = known_connection()) return known;
    auto fresh = Connection::Make(options_);  // joins the fork guard: never under the lock
    MutexLock lock(mutex_);
    if (!connection_) connection_ = std::move(fresh);
    return connection_;
  }
  std::shared_ptr<Connection> known_connection() const {
    MutexLock lock(mutex_);
    return connection_;
  }

  void BeforeFork() noexcept override { Lock(); }
  void AfterForkInParent(int /*child_life*/) noexcept override { Unlock(); }
  void AfterForkInChild() noexcept override {
    Forget();
    Unlock();
  }

 private:
  // Held from one handler to the next, which no analysis can follow.
  void Lock() AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void Unlock() AB_THREAD_ANNOTATION(no_thread_safety_analysis);
  void Forget() AB_THREAD_ANNOTATION(no_thread_safety_analysis);

  const Options options_;
  mutable Mutex mutex_;
  std::shared_ptr<Connection> connection_ AB_GUARDED_BY(mutex_);
};

Broker::Broker(Options options) : core_(std::make_shared<Core>(std::move(options))) {}
Broker::~Broker() = default;
Broker::Broker(Broker&&) noexcept = default;
Broker& Broker::operator=(Broker&&) noexcept = default;

void Broker::Core::Lock() { mutex_.lock(); }

void Broker::Core::Unlock() { mutex_.unlock(); }

void Broker::Core::Forget() {
  static auto* const inherited = new std::vector<std::shared_ptr<Connection>>;
  if (connection_) inherited->push_back(std::move(connection_));
  connection_ = nullptr;
}

const Broker::Options& Broker::options() const { return core_->options(); }

Result<Placement> Broker::Core::Room(const Device& device, std::vector<View> arrays, const PlaceOptions& options) {
  const auto at = connection();
  const auto local = at->mappers().Local(device);
  if (!local.ok()) return local.status();
  return MakeRoom(*at, options_.ns, *local, std::move(arrays), options.own, options.purpose, Timeout());
}

Result<Placement> Broker::Empty(std::span<const ArraySpec> specs, const PlaceOptions& options) {
  std::vector<View> arrays;
  arrays.reserve(specs.size());
  for (const ArraySpec& spec : specs) {
    if (const auto bytes = spec.compact_bytes(); !bytes.ok()) return bytes.status();
    View& array = arrays.emplace_back();
    array.type = spec.type;
    array.dtype = spec.dtype;
    array.shape = spec.shape;
  }
  return core_->Room(options.device.value_or(Device{}), std::move(arrays), options);
}

Result<Placement> Broker::Place(std::span<const View> sources, const PlaceOptions& options) {
  if (sources.empty()) return InvalidArgument("a share has at least one array");
  const Device& first = sources.front().device;
  std::vector<View> arrays;
  arrays.reserve(sources.size());
  for (const View& source : sources) {
    if (!options.device && (source.device.type != first.type || source.device.id != first.id)) {
      return InvalidArgument("the arrays of one share lie on one device: devices (", first.type, ", ", first.id,
                             ") and (", source.device.type, ", ", source.device.id, ")");
    }
    View& array = arrays.emplace_back();
    array.type = source.type;
    array.dtype = source.dtype;
    array.shape = source.shape;
  }
  auto placement = core_->Room(options.device.value_or(first), std::move(arrays), options);
  if (!placement.ok()) return placement;
  WrittenArena& arena = *placement->range()->arena;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto* const at = static_cast<const std::byte*>(placement->views()[i].data);
    if (at == nullptr) continue;
    AB_RETURN_IF_ERROR(arena.mapping().CopyFrom(sources[i], static_cast<uint64_t>(at - arena.data())));
  }
  return placement;
}

Result<Share> Broker::Publish(const Placement& placement, const PublishOptions& options) {
  const Deadline deadline = core_->Timeout();
  auto session = core_->connection()->Connected(deadline);
  if (!session.ok()) return session.status();
  if (placement.range()->session != *session) {
    return Unavailable("the memory of this placement went with an earlier connection; place it again")
        .Because("PLACEMENT_LOST");
  }
  return PublishPlacement(**session, core_->options().ns, placement, options, deadline);
}

Result<Placement> Broker::PlacementOf(std::span<const View> views) {
  const auto connection = core_->known_connection();
  const auto session = connection ? connection->current() : nullptr;
  if (!session || session->lifeline().lost()) return NotFound("nothing is placed on this connection");
  return FindPlacement(*session, views);
}

Result<Acquired> Broker::Acquire(const ShareRef& ref, const AcquireOptions& options) {
  auto acquired = AcquireMany({&ref, 1}, options);
  if (!acquired.ok()) return acquired.status();
  return std::move(acquired->front());
}

Result<std::vector<Acquired>> Broker::AcquireMany(std::span<const ShareRef> refs, const AcquireOptions& options) {
  if (refs.empty()) return std::vector<Acquired>();
  const auto connection = core_->connection();
  auto now = steady_clock::now();
  const auto until = now + options.wait;
  for (bool again = true;; now = steady_clock::now()) {
    const Deadline deadline = now + core_->options().timeout;
    auto session = connection->Connected(deadline);
    if (!session.ok()) return session.status();
    AB_RETURN_IF_ERROR(CheckLife(**session, refs));
    // One request waits only so long; who wants to wait longer asks again.
    auto left = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - now));
    const uint64_t longest = (*session)->server().limits.request_timeout_max_ms;
    if (longest != 0) left = std::min(left, milliseconds(longest));
    auto acquired = AcquireShares(**session, core_->options().ns, refs, options.mode,
                                  static_cast<uint64_t>(left.count()), deadline + left + kAnswerGrace);
    if (acquired.ok()) return acquired;
    const Status& why = acquired.status();
    const bool not_sent = again && why.reason() == Lifeline::kNotSent;
    const bool not_there = why.code() == Code::kDeadlineExceeded || why.code() == Code::kNotFound;
    if (not_sent) again = false;
    if (!not_sent && (!not_there || steady_clock::now() >= until)) return acquired;
  }
}

Status Broker::Withdraw(const ShareRef& ref) {
  const Deadline deadline = core_->Timeout();
  const std::string request = codec::EncodeWithdraw(core_->options().ns, {&ref, 1});
  for (bool again = true;; again = false) {
    auto session = core_->connection()->Connected(deadline);
    if (!session.ok()) return session.status();
    AB_RETURN_IF_ERROR(CheckLife(**session, {&ref, 1}));
    auto answer = (*session)->Call(Verb::kWithdraw, request, deadline);
    if (!answer.ok() && again && answer.status().reason() == Lifeline::kNotSent) continue;
    if (!answer.ok()) return answer.status();
    const auto returned = codec::DecodeReturned(answer->payload);
    if (!returned.ok()) return returned.status();
    (*session)->written().Return(*returned);
    return Ok();
  }
}

Result<std::vector<ListedShare>> Broker::List(const std::string& name_prefix) {
  const Deadline deadline = core_->Timeout();
  const auto connection = core_->connection();
  std::vector<ListedShare> all;
  std::string token;
  do {
    const std::string request = codec::EncodeList(core_->options().ns, name_prefix, token);
    std::string broker_id;
    auto answer = connection->Call(Verb::kList, request, deadline, &broker_id);
    if (!answer.ok()) return answer.status();
    auto page = codec::DecodeListed(answer->payload);
    if (!page.ok()) return page.status();
    if (page->next_page_token == token && !token.empty()) return Internal("the broker lists the same page twice");
    token = std::move(page->next_page_token);
    for (ListedShare& listed : page->shares) {
      listed.share.broker_id = broker_id;
      all.push_back(std::move(listed));
    }
  } while (!token.empty());
  return all;
}

Result<Stats> Broker::GetStats() {
  auto answer = core_->connection()->Call(Verb::kGetStats, {}, core_->Timeout());
  if (!answer.ok()) return answer.status();
  return codec::DecodeStats(answer->payload);
}

Result<ServerInfo> Broker::GetServerInfo() {
  auto answer = core_->connection()->Call(Verb::kGetServerInfo, {}, core_->Timeout());
  if (!answer.ok()) return answer.status();
  auto server = codec::DecodeServer(answer->payload);
  if (!server.ok()) return server.status();
  return std::move(server->info);
}

Status Broker::Flush() {
  const auto connection = core_->known_connection();
  return connection ? connection->Flush(core_->Timeout()) : Ok();
}

ClientStats Broker::client_stats() const {
  ClientStats stats;
  const auto connection = core_->known_connection();
  if (!connection) return stats;
  stats.pending_releases = connection->reaper().pending();
  const auto session = connection->current();
  if (!session) return stats;
  stats.live_leases = session->leases();
  stats.arenas_written = session->written().count();
  stats.arena_bytes = session->written().bytes();
  stats.arenas_mapped = session->read().count();
  return stats;
}

}  // namespace arraybridge
