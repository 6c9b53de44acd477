// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/pages/huge_page_size.h"

#include <bit>
#include <cstdlib>
#include <fstream>
#include <string>

namespace arraybridge {

uint64_t HugePageBytesOf(const char* text) {
  constexpr uint64_t kUsual = uint64_t{2} << 20;
  const uint64_t bytes = std::strtoull(text, nullptr, 10);
  return std::has_single_bit(bytes) && bytes >= kUsual ? bytes : kUsual;
}

uint64_t HugePageBytes() {
  static const uint64_t bytes = [] {
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    std::string line;
    std::getline(file, line);
    return HugePageBytesOf(line.c_str());
  }();
  return bytes;
}

}  // namespace arraybridge
