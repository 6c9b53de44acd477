// SPDX-License-Identifier: Apache-2.0
#include "client/process/descriptor_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace arraybridge {

Status NoDescriptor(std::string_view what, int error) {
  rlimit limit{};
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    return ResourceExhausted("no file descriptor is left in this process for ", what, " (RLIMIT_NOFILE ",
                             limit.rlim_cur, "): close files, or raise the limit, as `ulimit -n` does")
        .Because("DESCRIPTOR_LIMIT");
  }
  if (error == ENFILE) {
    return ResourceExhausted("no file is left in this system for ", what,
                             " (fs.file-max): close files, or raise the limit, as `sysctl fs.file-max` does")
        .Because("DESCRIPTOR_LIMIT");
  }
  return ResourceExhausted("no descriptor for ", what, ": ", std::strerror(error));
}

}  // namespace arraybridge
