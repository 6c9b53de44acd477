# SPDX-License-Identifier: Apache-2.0
# cmake -DSOURCE=… -DOUTPUT=… [-DREVISION=…] -P Revision.cmake: writes the definition of daemon/revision.h, only if it
# has changed. Packagers without a checkout pass REVISION.
if(NOT REVISION)
  set(REVISION unknown)
  find_program(GIT git)
  if(GIT)
    execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-toplevel
      OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    file(REAL_PATH ${SOURCE} source)
    if(NOT failed AND top STREQUAL source) # not a repository that contains this tree
      execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
        OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
      if(NOT failed)
        set(REVISION ${described})
      endif()
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "daemon/revision.h"

namespace arraybridge::daemon {

const char* const kRevision = "@REVISION@";

}  // namespace arraybridge::daemon
]])
