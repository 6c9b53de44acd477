// A Draft is a file without a name until it is whole: then it takes its name in one step. Whoever opens that name
// meanwhile finds what was there before. A draft that is never finished leaves nothing, however the command ends.
//
// Where the file system has no files without names, it is one under another name, beside its own: then it takes a
// SIGKILL to leave it there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "client/ctl/end_signals.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::ctl {

// What the system said of a file: PERMISSION_DENIED, else INTERNAL.
Status FileFailed(const std::string& path, int why);

class Draft {
 public:
  // `mode`: for whom it is, as of open(). That it cannot be made, the first of the others says.
  Draft(std::string path, mode_t mode);
  ~Draft();
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  Status SetOwner(uid_t user, gid_t group);
  Status SetMode(mode_t mode);
  // ABORTED: the user ends the command.
  Status Write(const void* bytes, uint64_t count);
  // On the disk, and then under its name. ALREADY_EXISTS: something has that, and is not to be replaced.
  Status Finish(bool replace);

 private:
  void OpenNamed(mode_t mode);
  bool TakeName() const;
  bool ReplaceName() const;

  const std::string path_;
  const std::string draft_;        // the other name
  std::optional<EndLater> named_;  // while it has that: who ends the command waits until it is gone
  UniqueFd file_;
  int why_not_ = 0;  // if there is no file
  bool finished_ = false;
};

// Until then, a name in it that is new may be lost with the system's power.
Status SyncFolderOf(const std::string& path);

}  // namespace arraybridge::ctl
