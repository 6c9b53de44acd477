// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/shared_pages/session_queue.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "proto/boundary/failpoint.h"
#include "proto/boundary/frame.h"

namespace arraybridge::daemon {
namespace {

using session_queue::Format;
using session_queue::Header;

constexpr std::string_view kSessionQueue = "a session queue";
constexpr auto kPublishVerb = static_cast<uint8_t>(Verb::kPublish);
// A waited completion leaves this slot free for the completion of an unwaited request that was taken and fails.
constexpr uint64_t kSpareSlots = 1;
// Field 2 of an Error message, "reason", in protobuf's encoding: the tag, then the length in one byte.
constexpr char kReasonTag = 0x12;
constexpr size_t kReasonBytesMax = session_queue::kOneSlotBytes - 2;

bool IsUnwaitedPublish(const Header& header) {
  return header.verb == kPublishVerb && (header.flags & session_queue::kUnwaited) != 0 &&
         (header.flags & session_queue::kOnSocket) == 0;
}

}  // namespace

Result<std::unique_ptr<SessionQueue>> SessionQueue::Create(uint64_t nonce, bool for_next_daemon) {
  AB_ASSIGN_OR_RETURN(auto requests, SharedPages::Create(sizeof(session_queue::Page), PROT_READ, "arraybridge-requests",
                                                         kSessionQueue));
  AB_ASSIGN_OR_RETURN(auto completions, SharedPages::Create(sizeof(session_queue::Page), PROT_READ | PROT_WRITE,
                                                            "arraybridge-completions", kSessionQueue));
  const session_queue::Preamble preamble{session_queue::kMajor, session_queue::kMinor, nonce, 0, 0, {}};
  AB_RETURN_IF_ERROR(requests->Write(offsetof(session_queue::Page, preamble), &preamble, sizeof preamble));
  auto& page = *static_cast<session_queue::Page*>(completions->base());
  page.preamble = preamble;
  page.progress.asleep = 1;  // the first request wakes the daemon
  std::unique_ptr<SessionQueue> made(new SessionQueue(std::move(requests), std::move(completions)));
  // After this seal only this mapping can write the completions.
  SharedPages& written = *made->completions_pages_;
  AB_RETURN_IF_ERROR(for_next_daemon ? written.SealForNextDaemon() : written.Seal());
  return made;
}

Result<std::unique_ptr<SessionQueue>> SessionQueue::Adopt(uint64_t nonce, UniqueFd requests, UniqueFd completions) {
  constexpr uint64_t kBytes = sizeof(session_queue::Page);
  AB_ASSIGN_OR_RETURN(auto read, SharedPages::Adopt(std::move(requests), kBytes, PROT_READ, kSessionQueue));
  AB_ASSIGN_OR_RETURN(auto written,
                      SharedPages::Adopt(std::move(completions), kBytes, PROT_READ | PROT_WRITE, kSessionQueue));
  const session_queue::Preamble& preamble = static_cast<session_queue::Page*>(written->base())->preamble;
  if (preamble.major != session_queue::kMajor || preamble.nonce != nonce) {
    return FailedPrecondition("a stored session queue has another layout, or belongs to another session");
  }
  if (!read->sealed()) return FailedPrecondition("the session has not mapped its queue yet");
  std::unique_ptr<SessionQueue> made(new SessionQueue(std::move(read), std::move(written)));
  const MutexLock lock(made->serving_);
  const MutexLock completing(made->completing_);
  made->reader_.Continue();
  made->writer_.Continue();
  // Sleeps are less frequent than nanoseconds.
  made->doorbell_.Continue(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  made->reader_.Serve();
  made->published_before_ = Load(made->completions_.preamble.published, std::memory_order_acquire);
  return made;
}

SessionQueue::SessionQueue(std::unique_ptr<SharedPages> requests, std::unique_ptr<SharedPages> completions)
    : requests_pages_(std::move(requests)),
      completions_pages_(std::move(completions)),
      requests_(*static_cast<const session_queue::Page*>(requests_pages_->base())),
      completions_(*static_cast<session_queue::Page*>(completions_pages_->base())),
      reader_(completions_.progress, requests_.progress, requests_.slots),
      writer_(completions_.progress, completions_.slots, requests_.progress),
      doorbell_(completions_.progress, requests_.progress) {}

Result<std::vector<UniqueFd>> SessionQueue::Export() const {
  const MutexLock lock(serving_);
  AB_ASSIGN_OR_RETURN(auto requests, requests_pages_->Export(true));
  AB_ASSIGN_OR_RETURN(auto completions, completions_pages_->Export(false));
  std::vector<UniqueFd> files;
  files.push_back(std::move(requests));
  files.push_back(std::move(completions));
  return files;
}

Result<std::vector<UniqueFd>> SessionQueue::ExportForNextDaemon() const {
  const MutexLock lock(serving_);
  AB_ASSIGN_OR_RETURN(auto requests, requests_pages_->Export(false));
  AB_ASSIGN_OR_RETURN(auto completions, completions_pages_->ExportWritable());
  std::vector<UniqueFd> files;
  files.push_back(std::move(requests));
  files.push_back(std::move(completions));
  return files;
}

Status SessionQueue::Seal(std::function<void()> send_doorbell) {
  const MutexLock lock(serving_);
  if (open_.load(std::memory_order_relaxed)) return Ok();
  AB_RETURN_IF_ERROR(requests_pages_->Seal());  // does nothing if another daemon did
  requests_pages_->CloseFile();
  completions_pages_->CloseFile();
  send_doorbell_ = std::move(send_doorbell);
  open_.store(true, std::memory_order_release);
  return Ok();
}

// A session that waits for each request has one entry. A publish is taken after it was served, so none is missed here.
bool SessionQueue::MayHavePublish() const {
  constexpr int kEntries = 4;
  if (!open_.load(std::memory_order_acquire)) return false;
  const auto is_publish = [](uint64_t first) {
    Header header{};
    std::memcpy(&header, &first, sizeof first);
    return IsUnwaitedPublish(header);
  };
  return reader_.MayHave(is_publish, kEntries);
}

// The lock is held while a publish is served, so that a thread that looks for a name waits until another thread has
// published it. Serving never sleeps: it seals nothing, calls no backend and sends no answer.
Result<uint64_t> SessionQueue::ServePublishes(uint64_t most, Others others, const Publish& publish) {
  uint64_t served = 0;
  session_queue::Entry entry;
  const MutexLock lock(serving_);
  if (!open_.load(std::memory_order_relaxed) || (others == Others::kStop && !deferred_.empty())) return served;
  while (served < most) {
    if (Copy(entry) == 0) break;
    const Header header = session_queue::HeaderOf(entry);
    const bool is_publish = IsUnwaitedPublish(header);
    if (!is_publish && (others == Others::kStop || deferred_.size() >= Format::kSlots)) break;
    if (!is_publish) {
      if (!MayTake()) break;
      const uint64_t begin = reader_.taken();
      const bool unwaited = (header.flags & session_queue::kUnwaited) != 0;
      deferred_.push_back({std::make_unique<session_queue::Entry>(entry), begin, begin + reader_.copied(), unwaited});
      deferred_any_.store(true);
      reader_.Advance();
      ShowTaken();
      continue;
    }
    if (!MayTake()) break;
    // Stored before the request is taken, so that a thread that finds the queue empty still waits until it is served.
    // The request is taken after it was served, so that a daemon that dies between leaves it to the next one, which
    // finds the share and its request.
    publishing_.store(true);
    ++served;
    const uint64_t end = reader_.taken() + reader_.copied();
    if (end > published_before_) {
      const Status status = publish(header.id, session_queue::PayloadOf(entry));
      if (!status.ok()) Fail(header.id, status);
      static_cast<void>(Failpoint("publish_served"));
      Store(completions_.preamble.published, end, std::memory_order_release);
    }
    reader_.Advance();
    ShowTaken();
  }
  publishing_.store(false);
  if (served > 0) Serve();
  if (reader_.broken()) return Broken();
  return served;
}

Result<bool> SessionQueue::Take(session_queue::Entry& entry, uint64_t* end, uint64_t until) {
  const MutexLock lock(serving_);
  if (!open_.load(std::memory_order_relaxed)) return false;
  if (!deferred_.empty()) {
    {
      const MutexLock completing(completing_);
      if (stopped_) return false;
    }
    const Deferred& next = deferred_.front();
    if (next.end > until) return false;
    entry = *next.entry;
    if (end != nullptr) *end = next.end;
    unwaited_ = next.unwaited ? std::optional(next.begin) : std::nullopt;
    deferred_.pop_front();
    deferred_any_.store(!deferred_.empty());
    return true;
  }
  if (Copy(entry) == 0) {
    if (reader_.broken()) return Broken();
    return false;
  }
  const Header header = session_queue::HeaderOf(entry);
  const uint64_t begin = reader_.taken();
  if (IsUnwaitedPublish(header) || begin + reader_.copied() > until) return false;
  if (end != nullptr) *end = begin + reader_.copied();
  if ((header.flags & session_queue::kUnwaited) != 0) unwaited_ = begin;
  if (TakeCopied()) return true;
  unwaited_.reset();
  return false;
}

uint64_t SessionQueue::Copy(session_queue::Entry& entry) {
  return writer_.MayHaveRoom(kRoomToTake) ? reader_.Copy(entry) : 0;
}

bool SessionQueue::MayTake() {
  const MutexLock lock(completing_);
  return !stopped_ && writer_.HasRoom(kRoomToTake);
}

bool SessionQueue::TakeCopied() {
  const MutexLock lock(completing_);
  if (stopped_ || !writer_.HasRoom(kRoomToTake)) return false;
  reader_.Advance();
  ShowTaken();
  return true;
}

void SessionQueue::ShowTaken() {
  uint64_t taken = unwaited_.value_or(reader_.taken());
  const auto oldest = std::ranges::find(deferred_, true, &Deferred::unwaited);
  if (oldest != deferred_.end()) taken = std::min(taken, oldest->begin);
  reader_.Show(taken);
}

void SessionQueue::Served() {
  const MutexLock lock(serving_);
  unwaited_.reset();
  ShowTaken();
}

void SessionQueue::Finish() {
  const MutexLock lock(serving_);
  Serve();
}

// `served` does not advance while there are deferred requests, because they have been taken but not served.
void SessionQueue::Serve() {
  if (deferred_.empty()) reader_.Serve();
  {
    const MutexLock lock(completing_);
    if (!doorbell_.IsDue()) return;
  }
  send_doorbell_();
}

Status SessionQueue::Broken() {
  open_.store(false, std::memory_order_release);
  return InvalidArgument("the session wrote a malformed entry into its submission queue, after slot ", reader_.taken());
}

SessionQueue::Written SessionQueue::Complete(const Header& header, std::string_view payload) {
  if (payload.size() > Format::kPayloadBytesMax) return Written::kNo;
  const MutexLock lock(completing_);
  if (!Write(header, payload, kSpareSlots)) return Written::kNo;
  return doorbell_.IsDue() ? Written::kDoorbellIsDue : Written::kYes;
}

// Writes an Error message with only the reason; the client builds the text. The following call of Serve wakes the
// client.
void SessionQueue::Fail(uint64_t id, const Status& status) {
  std::string error;
  if (!status.reason().empty()) {
    const std::string_view reason = std::string_view(status.reason()).substr(0, kReasonBytesMax);
    error.append({kReasonTag, static_cast<char>(reason.size())}).append(reason);
  }
  const MutexLock lock(completing_);
  const auto code = static_cast<uint32_t>(status.code());
  Write({.verb = kPublishVerb, .flags = session_queue::kUnwaited, .bytes = 0, .status = code, .id = id}, error, 0);
}

bool SessionQueue::Write(const Header& header, std::string_view payload, uint64_t spare) {
  const uint64_t slots = spsc::SlotsOf<Format>(Format::WordsOfPayload(payload.size()));
  if (stopped_ || !open_.load(std::memory_order_relaxed) || !writer_.HasRoom(slots + spare)) return false;
  thread_local session_queue::Entry entry;
  const uint64_t words = session_queue::Encode(header, payload, entry);
  Store(completions_.preamble.answered_id, header.id, std::memory_order_relaxed);
  writer_.Write({entry.data(), words});
  return true;
}

void SessionQueue::Stop() {
  const MutexLock lock(completing_);
  stopped_ = true;
}

}  // namespace arraybridge::daemon
