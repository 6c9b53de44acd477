// SPDX-License-Identifier: Apache-2.0
// A TempFile is a file without a name (O_TMPFILE) that gets its name in one step when it is complete. Until then the
// name refers to the previous file, if any. A TempFile that is not finished leaves nothing behind.
//
// On file systems without unnamed files it has a temporary name beside its final one, and a SIGKILL leaves it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "client/ctl/end_signals.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::ctl {

// The error of a system call on a file: PERMISSION_DENIED for EACCES and EPERM, else INTERNAL.
Status FileFailed(const std::string& path, int why);

class TempFile {
 public:
  // `mode`: as of open(). If the file cannot be made, the first call of another function returns the error.
  TempFile(std::string path, mode_t mode);
  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  Status SetOwner(uid_t user, gid_t group);
  Status SetMode(mode_t mode);
  // ABORTED: the user has interrupted the command.
  Status Write(const void* bytes, uint64_t count);
  // Writes the file to the disk and gives it its name. ALREADY_EXISTS: the name exists, and `replace` is false.
  Status Finish(bool replace);

 private:
  void OpenNamed(mode_t mode);
  bool TakeName() const;
  bool ReplaceName() const;

  const std::string path_;
  const std::string temp_name_;    // the temporary name
  std::optional<EndLater> named_;  // while the temporary name exists, signals wait until it is removed
  UniqueFd file_;
  int why_not_ = 0;  // errno, if the file could not be made
  bool finished_ = false;
};

// Writes the folder of `path` to the disk. Before that, a power failure can lose a new name in it.
Status SyncFolderOf(const std::string& path);

}  // namespace arraybridge::ctl
