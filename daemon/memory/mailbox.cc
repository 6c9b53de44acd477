#include "daemon/memory/mailbox.h"

#include <sys/mman.h>

#include <utility>

namespace arraybridge {
namespace {

constexpr std::string_view kWhat = "a mailbox";

}  // namespace

Result<std::unique_ptr<Mailbox>> Mailbox::Create() {
  // Writable here, too: who answers says so in it.
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  auto requests = SharedPages::Create(sizeof(mailbox::Page), kProtection, "arraybridge-requests", kWhat);
  if (!requests.ok()) return requests.status();
  auto answers = SharedPages::Create(sizeof(mailbox::Answers), kProtection, "arraybridge-answers", kWhat);
  if (!answers.ok()) return answers.status();
  std::unique_ptr<Mailbox> made(new Mailbox(*std::move(requests), *std::move(answers)));
  made->page_.version = mailbox::kVersion;
  made->answers_.version = mailbox::kVersion;
  // Only this mapping can ever write them, whoever gets hold of a descriptor.
  AB_RETURN_IF_ERROR(made->answers_pages_->Seal());
  return made;
}

Mailbox::Mailbox(std::unique_ptr<SharedPages> requests, std::unique_ptr<SharedPages> answers)
    : requests_(std::move(requests)),
      answers_pages_(std::move(answers)),
      page_(*static_cast<mailbox::Page*>(requests_->base())),
      answers_(*static_cast<mailbox::Answers*>(answers_pages_->base())) {}

Status Mailbox::Seal() {
  if (takes_) return Ok();
  AB_RETURN_IF_ERROR(requests_->Seal());
  requests_->CloseFile();
  answers_pages_->CloseFile();
  takes_ = true;
  return Ok();
}

Status Mailbox::Take(std::span<std::byte> buffer, FrameHeader* header, std::string_view* message) {
  taken_ = Load(page_.asked, std::memory_order_acquire);
  *header = mailbox::HeadOf(page_.request);
  header->request = taken_;
  const uint64_t bytes = mailbox::SizeOf(page_.request);
  const bool fits = bytes <= mailbox::kMessageBytesMax;
  auto* const copy = reinterpret_cast<char*>(buffer.data());
  if (fits) mailbox::CopyMessage(page_.request, bytes, copy);
  // Now: from here on the session may write the next one there.
  Store(answers_.taken, taken_, std::memory_order_release);
  if (!fits) return InvalidArgument("the mailbox has a request of ", bytes, " bytes");
  *message = {copy, bytes};
  return Ok();
}

bool Mailbox::Answer(const FrameHeader& answer, std::string_view message) {
  if (message.size() > mailbox::kMessageBytesMax) return Leave(answer.request), false;
  // What is written when nobody looks for it here might be read as the answer to something else.
  if (Load(page_.awaited, std::memory_order_relaxed) != answer.request) return false;
  mailbox::Write(answers_.answer, answer, message);
  return mailbox::EndLook(page_, answer.request);
}

void Mailbox::Leave(uint64_t request) {
  if (Load(page_.awaited, std::memory_order_relaxed) != request) return;
  Store(answers_.answer.size, mailbox::kBySocket, std::memory_order_relaxed);
  mailbox::EndLook(page_, request);
}

}  // namespace arraybridge
