// SPDX-License-Identifier: Apache-2.0
#include "client/lifeline/queue_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace arraybridge {

Result<std::unique_ptr<QueuePages>> QueuePages::Map(const UniqueFd& requests, const UniqueFd& completions) {
  constexpr std::string_view kWhat = "a session queue";
  AB_ASSIGN_OR_RETURN(auto own,
                      SharedMapping::Map(requests, sizeof(session_queue::Page), PROT_READ | PROT_WRITE, kWhat));
  AB_ASSIGN_OR_RETURN(auto theirs, SharedMapping::Map(completions, sizeof(session_queue::Page), PROT_READ, kWhat));
  std::unique_ptr<QueuePages> mapped(new QueuePages(std::move(own), std::move(theirs)));
  const uint32_t own_major = mapped->own_.preamble.major;
  const uint32_t their_major = mapped->theirs_.preamble.major;
  if (own_major != session_queue::kMajor || their_major != session_queue::kMajor) {
    return FailedPrecondition("the session queue has layout ", std::max(own_major, their_major),
                              ", this client speaks ", session_queue::kMajor);
  }
  return mapped;
}

QueuePages::QueuePages(SharedMapping own, SharedMapping theirs)
    : own_pages_(std::move(own)),
      their_pages_(std::move(theirs)),
      own_(*static_cast<session_queue::Page*>(own_pages_.base())),
      theirs_(*static_cast<const session_queue::Page*>(their_pages_.base())),
      requests(own_.progress, own_.slots, theirs_.progress),
      completions(own_.progress, theirs_.progress, theirs_.slots),
      doorbell(own_.progress, theirs_.progress) {}

}  // namespace arraybridge
