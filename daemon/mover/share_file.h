// SPDX-License-Identifier: Apache-2.0
// The file of one share: a header (tensors.h), then the bytes. The functions read and write whole files, and compute
// the digest of the bytes on the way. They are slow, and take no lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/memory/memory_backend.h"
#include "daemon/mover/digest.h"
#include "daemon/mover/label.h"
#include "daemon/mover/tier_directory.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

// A file whose header was read. The texts of the label are views of `storage`.
struct OpenedFile {
  UniqueFd file;
  std::unique_ptr<std::string> storage;
  label::Label label;
  uint64_t data = 0;  // where the bytes begin
};

// Writes the bytes at `offset` of the block to the file, under its final name once all is written. `label`: without a
// digest. UNAVAILABLE, DISK_FAILED: the disk is full, or failed.
Status WriteShare(const TierDirectory& directory, const TierFile& file, label::Label label, const MemoryBlock& block,
                  uint64_t offset);
// FAILED_PRECONDITION: there is no such file, or it is none of ours.
Result<OpenedFile> OpenShare(const TierDirectory& directory, const std::string& name);
// Reads the bytes into the block. DATA_LOSS: they are not those that were written.
Status ReadShare(const OpenedFile& opened, const MemoryBlock& block);
// Reads the bytes and compares the digest. DATA_LOSS.
Status CheckShare(const OpenedFile& opened);

}  // namespace arraybridge::daemon
