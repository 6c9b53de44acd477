// A memfd is an anonymous file in memory. These are the few things the broker asks of the kernel about one; together
// they make the life of an arena: create, populate, reopen for each reader, seal, and find out that nobody has it.
#pragma once

#include <cstdint>
#include <functional>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Close-on-exec, sealable, not executable, `size` bytes long for ever (sealed against resizing), mode 0600 (or any uid
// could reopen it writable). `name`: what /proc shows, for those who look.
Result<UniqueFd> CreateMemfd(uint64_t size, const char* name = "arraybridge");

// A description of its own, so that the kernel can tell who still has the file. `flags` as for open(2), without CREAT.
Result<UniqueFd> ReopenMemfd(int fd, int flags);

// Somebody gave pages back that were populated: whoever reads there needs memory that may be missing by then.
bool HasMemfdHoles(int fd, uint64_t size);

// 0, or the errno: EBUSY says that somebody maps it writable. The caller knows which answers are no failure.
[[nodiscard]] int AddMemfdSeals(int fd, int seals);

// True when no other description of the file exists and nobody maps it, privately neither.
// REQUIRES: `keep` was opened O_RDONLY; a duplicate of its description is not seen.
bool HasMemfdAlone(int keep);

// What pages a file's bytes come in.
enum class MemfdPages {
  kSmall,
  kAdvised,    // huge ones, which the kernel gives to whoever advises it to
  kCollapsed,  // huge ones, made of small ones
};

// Reserves and faults in every page, so that no borrower meets SIGBUS and no first write pays for a page fault.
// REQUIRES: `fd` is writable and not sealed.
Status PopulateMemfd(int fd, uint64_t size, MemfdPages pages, const std::function<void()>& progress = {});

// How a memfd gets huge pages from this kernel (transparent_hugepage/shmem_enabled); kSmall: not at all.
MemfdPages MemfdHugePages();

}  // namespace arraybridge
