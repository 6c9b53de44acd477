// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/explained_error.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "proto/boundary/result.h"

namespace arraybridge {

std::string ExplainedError(int error, std::string_view process) {
  rlimit limit{};
  if (error == ENOMEM && ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return Concat(std::strerror(error), " (RLIMIT_AS of ", process, " is ", limit.rlim_cur,
                  " bytes of address space: raise it, as `ulimit -v` and LimitAS= of a unit do)");
  }
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return Concat(std::strerror(error), " (RLIMIT_FSIZE of ", process, " is ", limit.rlim_cur,
                  " bytes of a file: raise it, as `ulimit -f` and LimitFSIZE= of a unit do)");
  }
  return std::strerror(error);
}

}  // namespace arraybridge
