// A session's side of a mailbox that writes what it likes.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <string_view>

#include "proto/boundary/mailbox_layout.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class MailboxPages {
 public:
  MailboxPages(const UniqueFd& requests, const UniqueFd& answers) {
    page_ = static_cast<mailbox::Page*>(
        ::mmap(nullptr, sizeof(mailbox::Page), PROT_READ | PROT_WRITE, MAP_SHARED, requests.get(), 0));
    answers_ = static_cast<const mailbox::Answers*>(
        ::mmap(nullptr, sizeof(mailbox::Answers), PROT_READ, MAP_SHARED, answers.get(), 0));
    EXPECT_NE(page_, MAP_FAILED);
    EXPECT_NE(answers_, MAP_FAILED);
  }
  ~MailboxPages() {
    ::munmap(page_, sizeof(mailbox::Page));
    ::munmap(const_cast<mailbox::Answers*>(answers_), sizeof(mailbox::Answers));
  }
  MailboxPages(const MailboxPages&) = delete;
  MailboxPages& operator=(const MailboxPages&) = delete;

  mailbox::Page& page() { return *page_; }
  const mailbox::Answers& answers() const { return *answers_; }
  bool awake() const { return Load(answers_->awake, std::memory_order_relaxed) != 0; }
  uint64_t taken() const { return Load(answers_->taken, std::memory_order_acquire); }
  // False: the broker sleeps.
  bool Ask(Verb verb, std::string_view message, uint64_t request, uint16_t flags = 0) {
    return mailbox::Ask(*page_, {static_cast<uint16_t>(verb), flags, 0, request}, message, *answers_);
  }
  bool is_awaited() const { return Load(page_->awaited, std::memory_order_acquire) != 0; }
  // REQUIRES: !is_awaited().
  bool by_socket() const { return mailbox::SizeOf(answers_->answer) == mailbox::kBySocket; }
  FrameHeader head() const { return mailbox::HeadOf(answers_->answer); }
  std::string answer() const {
    std::string message(mailbox::SizeOf(answers_->answer), '\0');
    mailbox::CopyMessage(answers_->answer, message.size(), message.data());
    return message;
  }

 private:
  mailbox::Page* page_ = nullptr;
  const mailbox::Answers* answers_ = nullptr;
};

}  // namespace arraybridge
