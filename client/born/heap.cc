// SPDX-License-Identifier: Apache-2.0
// The thread exists from the first Open until the heap has been closed for a while. It keeps the heap alive and no
// Connection, so that a Broker ends when its owner drops it.
#include "client/born/heap.h"

#include <signal.h>

#include <algorithm>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often the thread looks for arenas that are not needed.
constexpr milliseconds kHeapLook{1000};
// After a refusal no arena is asked for.
constexpr milliseconds kRefusedFor{1000};
constexpr milliseconds kHeapIdle{5000};  // if no session tells

const std::byte* Address(const void* data) { return static_cast<const std::byte*>(data); }

}  // namespace

BornHeap::Impl::Impl(std::weak_ptr<Connection> connection, const Broker::Options& broker, const Options& options)
    : connection_(std::move(connection)),
      namespace_(broker.ns),
      timeout_(broker.timeout),
      reserve_bytes_(BornPagesOf(options.reserve_bytes)),
      blocks_(reserve_bytes_) {
  JoinForkGuard(this);
}

BornHeap::Impl::~Impl() { LeaveForkGuard(this); }

Status BornHeap::Impl::Open() {
  const auto connection = connection_.lock();
  if (in_child_.load() || connection == nullptr) {
    return FailedPrecondition("this heap belongs to another process, or its Broker is closed: make another one")
        .Because("BORN_CHILD");
  }
  AB_RETURN_IF_ERROR(connection->Connected(steady_clock::now() + timeout_).status());
  {
    const MutexLock lock(mutex_);
    AB_RETURN_IF_ERROR(StartThread());
    ++opened_;
    if (HasRoom(reserve_bytes_ / 2)) return Ok();
  }
  // A refusal of the broker is not an error: the framework's own allocator serves.
  static_cast<void>(Fetch(reserve_bytes_));
  return Ok();
}

void BornHeap::Impl::Close() {
  const MutexLock lock(mutex_);
  if (opened_ > 0) --opened_;
  closed_at_ = steady_clock::now();
}

// Blocks that were freed after a put wait for the reclaimer's thread, which may not have had the processor yet.
BornHeap::Block BornHeap::Impl::TryAllocate(uint64_t bytes, Parts parts) {
  if (in_child_.load(std::memory_order_relaxed)) return {.data = nullptr, .lack = Lack::kChild};
  const uint64_t pages = BornPagesOf(bytes);
  std::shared_ptr<Reclaimer> reclaimer;
  {
    const MutexLock lock(mutex_);
    if (std::byte* const data = Take(pages, parts)) return {.data = data};
    if (!arenas_.empty()) reclaimer = arenas_.front().reclaimer();
  }
  if (reclaimer != nullptr && reclaimer->pending() > 0) reclaimer->CollectReady();
  const MutexLock lock(mutex_);
  if (std::byte* const data = Take(pages, parts)) return {.data = data};
  Want(pages);
  return {.data = nullptr, .lack = refusal_.ok() ? Lack::kNoRoom : Lack::kRefused};
}

std::byte* BornHeap::Impl::Take(uint64_t pages, Parts parts) {
  if (pages == 0) return nullptr;
  allocated_at_ = CoarseNow();
  std::byte* const recent = blocks_.TakeRecent(pages, parts == Parts::kCopied);
  return recent != nullptr ? recent : Carve(pages, parts);
}

// The oldest arena first, so that the latest ones become empty.
std::byte* BornHeap::Impl::Carve(uint64_t pages, Parts parts) {
  for (BornArena& arena : arenas_) {
    auto range = arena.Carve(pages);
    if (range == nullptr) continue;
    carved_ += pages;
    if (carved_ >= reserve_bytes_ / 4) wanted_changed_.NotifyOne();
    return blocks_.Add(std::move(range), parts == Parts::kCopied);
  }
  return nullptr;
}

void BornHeap::Impl::Want(uint64_t bytes) {
  const bool told = wanted_ != 0;
  wanted_ = std::max(wanted_, bytes);
  if (!told) wanted_changed_.NotifyOne();
}

bool BornHeap::Impl::Free(const std::byte* data) {
  if (!span_.MayContain(data)) return false;
  BornBlocks::Dead dead;  // destroyed without the lock
  const MutexLock lock(mutex_);
  if (in_child_.load(std::memory_order_relaxed)) return blocks_.Find(data) != nullptr;  // it is the parent's
  return blocks_.Return(data, dead);
}

uint64_t BornHeap::Impl::SizeOf(const std::byte* data) const {
  if (!span_.MayContain(data)) return 0;
  const MutexLock lock(mutex_);
  const Placement::Range* const range = blocks_.Find(data);
  return range == nullptr ? 0 : range->size;
}

bool BornHeap::Impl::Fits(const std::byte* data, uint64_t bytes) const {
  if (in_child_.load(std::memory_order_relaxed)) return false;
  const MutexLock lock(mutex_);
  const Placement::Range* const range = blocks_.Find(data);
  return range != nullptr && range->size == BornPagesOf(bytes) && !range->published.load();
}

Status BornHeap::Impl::refusal() const {
  const MutexLock lock(mutex_);
  return refusal_;
}

bool BornHeap::Impl::HasRoom(uint64_t bytes) const {
  const uint64_t pages = BornPagesOf(bytes);
  return std::ranges::any_of(arenas_, [pages](const BornArena& arena) { return arena.HasRoom(pages); });
}

Status BornHeap::Impl::Fetch(uint64_t bytes) {
  const auto now = steady_clock::now();
  {
    const MutexLock lock(mutex_);
    if (now < refused_until_) return refusal_;
  }
  const auto connection = connection_.lock();
  auto arena = connection == nullptr
                   ? Unavailable("the Broker of this heap is closed")
                   : BornArena::Fetch(*connection, namespace_, std::max(bytes, reserve_bytes_), now + timeout_);
  const MutexLock lock(mutex_);
  refusal_ = arena.status();
  if (!arena.ok()) {
    refused_until_ = now + kRefusedFor;
    return refusal_;
  }
  span_.Note(arena->arena().data(), arena->size());
  arenas_.push_back(*std::move(arena));
  return Ok();
}

template <class Predicate>
void BornHeap::Impl::Retire(Predicate is_over, BornBlocks::Dead& dead, std::vector<BornArena>& gone) {
  const auto over =
      std::stable_partition(arenas_.begin(), arenas_.end(), [&](const BornArena& arena) { return !is_over(arena); });
  for (auto arena = over; arena != arenas_.end(); ++arena) {
    arena->Abandon();
    blocks_.TakeAllRecent(&arena->arena(), dead);
    gone.push_back(std::move(*arena));
  }
  arenas_.erase(over, arenas_.end());
}

Status BornHeap::Impl::StartThread() {
  if (running_) return Ok();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Handlers of the host program never run on this thread.
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    std::thread([self = shared_from_this()] { self->Run(); }).detach();
    running_ = true;
  } catch (const std::system_error&) {
    status = ResourceExhausted("no thread is left to fetch memory for arrays beside");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void BornHeap::Impl::Run() {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = RunOnce();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kHeapLook);
    }
  }
}

bool BornHeap::Impl::IsOver(const Connection* connection, milliseconds idle) const {
  return connection == nullptr || (opened_ == 0 && steady_clock::now() >= closed_at_ + idle);
}

std::optional<uint64_t> BornHeap::Impl::TakeWish() {
  const uint64_t wanted = std::exchange(wanted_, 0);
  const bool looks_ahead = std::exchange(carved_, 0) > 0 && opened_ > 0;
  if (wanted != 0 || (looks_ahead && !HasRoom(reserve_bytes_ / 2))) return wanted;
  return std::nullopt;
}

// It has a Connection only for a moment, without the lock, because it may be the last to have it.
bool BornHeap::Impl::RunOnce() {
  {
    const MutexLock lock(mutex_);
    if (wanted_ == 0 && carved_ < reserve_bytes_ / 4)
      wanted_changed_.WaitUntil(mutex_, steady_clock::now() + kHeapLook);
  }
  const auto connection = connection_.lock();
  const auto session = connection == nullptr ? nullptr : connection->current();
  const milliseconds idle = session == nullptr ? kHeapIdle : session->arena_idle();
  if (session != nullptr) tallies_.Tell(*session);
  BornBlocks::Dead dead;  // both are destroyed without the lock
  std::vector<BornArena> gone;
  std::optional<uint64_t> wish;
  {
    const MutexLock lock(mutex_);
    if (IsOver(connection.get(), idle)) {
      Retire([](const BornArena&) { return true; }, dead, gone);
      running_ = false;
      return false;
    }
    wish = TakeWish();
  }
  if (wish) static_cast<void>(Fetch(*wish));
  if (session != nullptr) GiveBackSome(*session, idle);
  return true;
}

void BornHeap::Impl::GiveBackSome(Session& session, milliseconds idle) {
  BornBlocks::Dead dead;
  std::vector<BornArena> gone;
  const MutexLock lock(mutex_);
  const auto before = CoarseNow() - idle;
  if (allocated_at_ < before && blocks_.recent_bytes() > reserve_bytes_) blocks_.TakeAllRecent(nullptr, dead);
  uint64_t kept = 0;
  const bool is_lost = session.lifeline().lost();
  const auto is_over = [&](const BornArena& arena) {
    if (is_lost || !arena.is_of(session)) return true;
    if (!arena.is_unused()) return false;
    kept += arena.size();
    return kept > 2 * reserve_bytes_ && arena.used() < before;
  };
  Retire(is_over, dead, gone);
}

void BornHeap::Impl::Lock() { mutex_.lock(); }

void BornHeap::Impl::Unlock() { mutex_.unlock(); }

// A child sees the arrays of its parent as they were. So both get private mappings of the arenas in which arrays live,
// from which nothing is carved or published without a copy any more.
void BornHeap::Impl::SeparateFromChild() noexcept {
  blocks_.MakeLentPrivate();
  try {
    Retire([](const BornArena& arena) { return !arena.is_shared(); }, dead_in_fork_, gone_in_fork_);
  } catch (const std::bad_alloc&) {
    arenas_.clear();  // what was freed lately in them is kept until the process ends
  }
}

void BornHeap::Impl::BeforeFork() noexcept {
  Lock();
  if (!in_child_.load()) SeparateFromChild();
}

void BornHeap::Impl::BuryAndUnlock() noexcept {
  const BornBlocks::Dead dead = std::exchange(dead_in_fork_, {});
  const std::vector<BornArena> gone = std::exchange(gone_in_fork_, {});
  Unlock();
}

void BornHeap::Impl::AfterForkInParent(int /*child_life*/) noexcept { BuryAndUnlock(); }

void BornHeap::Impl::AfterForkInChild() noexcept {
  in_child_.store(true);
  Unlock();
}

BornHeap::BornHeap(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

BornHeap::~BornHeap() = default;

std::shared_ptr<BornHeap> BornHeap::Of(Broker& broker, const Options& options) {
  return std::make_shared<BornHeap>(std::make_shared<Impl>(broker.connection(), broker.options(), options));
}

Status BornHeap::Open() { return impl_->Open(); }

void BornHeap::Close() { impl_->Close(); }

BornHeap::Block BornHeap::TryAllocate(uint64_t bytes, Parts parts) noexcept {
  try {
    return impl_->TryAllocate(bytes, parts);
  } catch (const std::bad_alloc&) {
    return {.data = nullptr, .lack = Lack::kNoRoom};
  }
}

void* BornHeap::TryAllocate(uint64_t bytes, Parts parts, BornTally& tally) noexcept {
  const Block block = TryAllocate(bytes, parts);
  if (block.data != nullptr) {
    tally.NoteArray(bytes);
  } else {
    const bool is_child = block.lack == Lack::kChild;
    const bool is_refused = block.lack == Lack::kRefused;
    tally.NoteMiss(is_child ? BornMiss::kChild : is_refused ? BornMiss::kRefused : BornMiss::kNoRoom, bytes);
  }
  return block.data;
}

// If there is no memory to keep the block for later, it is given back.
bool BornHeap::Free(void* data) noexcept {
  try {
    return impl_->Free(Address(data));
  } catch (const std::bad_alloc&) {
    return true;
  }
}

uint64_t BornHeap::SizeOf(const void* data) const noexcept { return impl_->SizeOf(Address(data)); }

bool BornHeap::Fits(const void* data, uint64_t bytes) const noexcept { return impl_->Fits(Address(data), bytes); }

std::shared_ptr<BornTally> BornHeap::Tally(size_t framework) { return impl_->tallies().Add(framework); }

Status BornHeap::refusal() const { return impl_->refusal(); }

}  // namespace arraybridge
