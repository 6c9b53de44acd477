// SPDX-License-Identifier: Apache-2.0
// Headers of .npy files: any header gives an array with a computable size, or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "client/ctl/shares/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  using namespace arraybridge;
  const std::string_view head(reinterpret_cast<const char*>(bytes), count);
  const auto read = ctl::ReadNpyHead(head);
  if (!read.ok()) {
    AB_CHECK(!read.status().message().empty());
    return 0;
  }
  AB_CHECK(read->compact_bytes().ok());
  const auto written = ctl::NpyHead(*read);
  AB_CHECK(written.ok());
  const auto again = ctl::ReadNpyHead(*written);
  AB_CHECK(again.ok() && *again == *read);
  return 0;
}
