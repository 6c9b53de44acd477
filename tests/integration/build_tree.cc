// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/build_tree.h"

namespace arraybridge {

std::string Built(const std::string& product) {
  const char* const moved = std::getenv("ARRAYBRIDGE_BUILD");
  return std::string(moved != nullptr ? moved : ARRAYBRIDGE_BUILD_FOLDER) + "/" + product;
}

}  // namespace arraybridge
