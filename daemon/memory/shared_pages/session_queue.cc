#include "daemon/memory/shared_pages/session_queue.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "proto/boundary/frame.h"

namespace arraybridge {
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

Result<std::unique_ptr<SessionQueue>> SessionQueue::Create(uint64_t nonce) {
  auto requests = SharedPages::Create(sizeof(session_queue::Page), PROT_READ, "arraybridge-requests", kSessionQueue);
  if (!requests.ok()) return requests.status();
  auto completions = SharedPages::Create(sizeof(session_queue::Page), PROT_READ | PROT_WRITE, "arraybridge-completions",
                                         kSessionQueue);
  if (!completions.ok()) return completions.status();
  const session_queue::Preamble preamble{session_queue::kMajor, session_queue::kMinor, nonce, 0};
  AB_RETURN_IF_ERROR((*requests)->Write(offsetof(session_queue::Page, preamble), &preamble, sizeof preamble));
  auto& page = *static_cast<session_queue::Page*>((*completions)->base());
  page.preamble = preamble;
  page.progress.asleep = 1;  // the first request wakes the daemon
  std::unique_ptr<SessionQueue> made(new SessionQueue(*std::move(requests), *std::move(completions)));
  // After this seal only this mapping can write the completions.
  AB_RETURN_IF_ERROR(made->completions_pages_->Seal());
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
  auto requests = requests_pages_->Export(true);
  if (!requests.ok()) return requests.status();
  auto completions = completions_pages_->Export(false);
  if (!completions.ok()) return completions.status();
  std::vector<UniqueFd> files;
  files.push_back(*std::move(requests));
  files.push_back(*std::move(completions));
  return files;
}

Status SessionQueue::Seal(std::function<void()> send_doorbell) {
  const MutexLock lock(serving_);
  if (requests_pages_->sealed()) return Ok();
  AB_RETURN_IF_ERROR(requests_pages_->Seal());
  requests_pages_->CloseFile();
  completions_pages_->CloseFile();
  send_doorbell_ = std::move(send_doorbell);
  open_.store(true, std::memory_order_release);
  return Ok();
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
    // Stored before the request is taken, so that a thread that finds the queue empty still waits until it is served.
    publishing_.store(is_publish);
    if (!TakeCopied()) break;
    if (!is_publish) {
      deferred_.push_back(std::make_unique<session_queue::Entry>(entry));
      deferred_any_.store(true);
      continue;
    }
    ++served;
    const Status status = publish(session_queue::PayloadOf(entry));
    if (!status.ok()) Fail(header.id, status);
  }
  publishing_.store(false);
  if (served > 0) Serve();
  if (reader_.broken()) return Broken();
  return served;
}

Result<bool> SessionQueue::Take(session_queue::Entry& entry) {
  const MutexLock lock(serving_);
  if (!open_.load(std::memory_order_relaxed)) return false;
  if (!deferred_.empty()) {
    {
      const MutexLock completing(completing_);
      if (stopped_) return false;
    }
    entry = *deferred_.front();
    deferred_.pop_front();
    deferred_any_.store(!deferred_.empty());
    return true;
  }
  if (Copy(entry) == 0) {
    if (reader_.broken()) return Broken();
    return false;
  }
  return !IsUnwaitedPublish(session_queue::HeaderOf(entry)) && TakeCopied();
}

uint64_t SessionQueue::Copy(session_queue::Entry& entry) {
  return writer_.MayHaveRoom(kRoomToTake) ? reader_.Copy(entry) : 0;
}

bool SessionQueue::TakeCopied() {
  const MutexLock lock(completing_);
  if (stopped_ || !writer_.HasRoom(kRoomToTake)) return false;
  reader_.Take();
  return true;
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

}  // namespace arraybridge
