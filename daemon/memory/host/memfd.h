// SPDX-License-Identifier: Apache-2.0
// A memfd is an anonymous file in memory. These functions are the system calls that the broker makes on one. Together
// they make the life of an arena. They create, populate and seal it, reopen it for each reader, and detect that no
// other process has it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Creates a memfd that is close-on-exec, sealable, not executable, sealed against resizing at `size` bytes, and of mode
// 0600 (otherwise any uid could reopen it writable). `name` is shown in /proc.
Result<UniqueFd> CreateMemfd(uint64_t size, const char* name = "arraybridge");

// Opens a new description of the file, so that the kernel can count the users of the file. `flags` as for open(2),
// without O_CREAT.
Result<UniqueFd> ReopenMemfd(int fd, int flags);

// FAILED_PRECONDITION: the system calls on which this file depends are refused, or /proc is missing; says what to do.
Status CheckMemfds();

// True if a process released pages that were populated. A read of such a page needs new memory, which may be missing.
bool HasMemfdHoles(int fd, uint64_t size);

// A file that CreateMemfd made in another daemon. FAILED_PRECONDITION: it has another size, or can be resized. `what`:
// the noun in messages.
Status CheckStoredMemfd(int fd, uint64_t size, std::string_view what);

// Returns 0 or the errno. EBUSY means that a process maps the file writable. The caller decides which errors are
// failures.
[[nodiscard]] int AddMemfdSeals(int fd, int seals);

// True if no other description and no mapping of the file exists, not even a private one. REQUIRES: `keep` was opened
// O_RDONLY. A duplicate of its description is not detected.
bool HasMemfdAlone(int keep);

// The kind of pages that back a file.
enum class MemfdPages {
  kSmall,
  kAdvised,    // huge pages, requested by madvise
  kCollapsed,  // huge pages, made from small ones
};

// Reserves and faults in every page, so that no borrower gets SIGBUS and no first write causes a page fault. REQUIRES:
// `fd` is writable and not sealed.
Status PopulateMemfd(int fd, uint64_t size, MemfdPages pages, const std::function<void()>& progress = {});

// How a memfd gets huge pages from this kernel (transparent_hugepage/shmem_enabled). kSmall: it gets none.
MemfdPages MemfdHugePages();

}  // namespace arraybridge::daemon
