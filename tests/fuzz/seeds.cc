// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target once with each file of the folder that is its argument: what a compiler without libFuzzer can do.
// It prints a file's name before it runs it, in GoogleTest's form.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]), 64;
  std::vector<std::filesystem::path> seeds(std::filesystem::directory_iterator(argv[1]), {});
  std::sort(seeds.begin(), seeds.end());
  for (const auto& seed : seeds) {
    std::printf("[ RUN      ] %s\n", seed.c_str());
    std::fflush(stdout);
    std::ifstream file(seed, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    std::printf("[       OK ] %s (0 ms)\n", seed.c_str());
  }
  return seeds.empty() ? 1 : 0;
}
