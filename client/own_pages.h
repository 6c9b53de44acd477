// Pages that a session of this process shares with the broker and with nobody else: a forked child has them not, since
// it must not speak for its parent.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Maps all of `file`, shared. `protection`: as of mmap; `what`: "a page of holds". FAILED_PRECONDITION: it has not just
// so many bytes, or could shrink, or cannot be kept from children. RESOURCE_EXHAUSTED: no address space.
Result<void*> MapOwnPages(const UniqueFd& file, uint64_t bytes, int protection, std::string_view what);

}  // namespace arraybridge
