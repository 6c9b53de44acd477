// SPDX-License-Identifier: Apache-2.0
// SharedPages are a few pages that the daemon shares with a client: a memfd of fixed size that the daemon maps and
// exports as new descriptions.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// Not thread-safe, except for const methods.
class SharedPages {
 public:
  // Reserves memory for all pages, because a first touch without memory would raise SIGBUS. `protection`: as for mmap;
  // `name`: shown in /proc; `what`: the noun in messages. RESOURCE_EXHAUSTED: no descriptor or no memory.
  static Result<std::unique_ptr<SharedPages>> Create(uint64_t bytes, int protection, const char* name,
                                                     std::string_view what);
  // The file of pages that another daemon created. FAILED_PRECONDITION: it is not of this size, or can be resized.
  static Result<std::unique_ptr<SharedPages>> Adopt(UniqueFd file, uint64_t bytes, int protection,
                                                    std::string_view what);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  void* base() const { return base_; }
  // Writes bytes, regardless of `protection`. REQUIRES: no other process has the file. INTERNAL: the write failed.
  Status Write(uint64_t offset, const void* bytes, uint64_t count);
  // Opens a new description for another process. FAILED_PRECONDITION: `writable` after Seal; any after CloseFile.
  Result<UniqueFd> Export(bool writable) const;
  // A description that can be mapped writable only after SealForNextDaemon. FAILED_PRECONDITION after CloseFile.
  Result<UniqueFd> ExportWritable() const;
  // From now on no process can map the pages writable or release their memory; existing mappings remain. Idempotent.
  Status Seal();
  // Instead of Seal, for pages that the next daemon maps writable: no seal is added any more. Another process gets
  // read-only descriptions; only one with this daemon's uid, or with CAP_DAC_OVERRIDE, could reopen one writable.
  Status SealForNextDaemon();
  bool sealed() const { return sealed_; }
  // Closes the descriptor. Called when every process that needs the pages has mapped them.
  void CloseFile() { file_.reset(); }

 private:
  SharedPages(UniqueFd file, void* base, uint64_t bytes, std::string_view what)
      : file_(std::move(file)), base_(base), bytes_(bytes), what_(what) {}

  UniqueFd file_;
  void* const base_;
  const uint64_t bytes_;
  const std::string_view what_;
  bool sealed_ = false;
};

}  // namespace arraybridge::daemon
