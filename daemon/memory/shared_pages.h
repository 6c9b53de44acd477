// SharedPages are a few pages that the daemon shares with a client: a memfd of fixed size, mapped here, and handed out
// as descriptions of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

// Not thread-safe, but for what is const.
class SharedPages {
 public:
  // Memory for all of it is there, or it is refused: a first touch without would be a SIGBUS. `protection`: as of mmap;
  // `name`: what /proc shows; `what`: for messages. RESOURCE_EXHAUSTED: no descriptor, no memory.
  static Result<std::unique_ptr<SharedPages>> Create(uint64_t bytes, int protection, const char* name,
                                                     std::string_view what);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  void* base() const { return base_; }
  // Before anybody else has it; whatever the protection. INTERNAL.
  Status Write(uint64_t offset, const void* bytes, uint64_t count);
  // A description for somebody else. FAILED_PRECONDITION: writable, after Seal; any, after CloseFile.
  Result<UniqueFd> Export(bool writable) const;
  // Nobody can map it writable from now on, nor take its memory away; who has done so keeps his mapping. Idempotent.
  Status Seal();
  bool sealed() const { return sealed_; }
  // Everybody has mapped it who ever will: it costs no descriptor any more.
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

}  // namespace arraybridge
