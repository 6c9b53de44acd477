// A Draft is a file under another name, beside its own, until it is whole: then it takes its name in one step. Whoever
// opens that name meanwhile finds what was there before. A draft that is never finished leaves nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

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
  Status Write(const void* bytes, uint64_t count);
  // On the disk, and then under its name. ALREADY_EXISTS: something has that, and is not to be replaced.
  Status Finish(bool replace);

 private:
  const std::string path_;
  const std::string draft_;
  const UniqueFd file_;
  const int why_not_;  // if there is no file
  bool finished_ = false;
};

// Until then, a name in it that is new may be lost with the system's power.
Status SyncFolderOf(const std::string& path);

}  // namespace arraybridge::ctl
