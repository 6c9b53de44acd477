// SPDX-License-Identifier: Apache-2.0
// GPU memory between two processes through a daemon: `gpu_bench --address DIRECTORY --driver PATH --sizes 4096,1048576
// --rounds N`. Prints one JSON object per line.
#include <cstring>
#include <sstream>
#include <string>

#include "tests/bench/support.h"
#include "tests/gpu/bench/reader.h"
#include "tests/gpu/bench/writer.h"

int main(int count, char** words) {
  using namespace arraybridge::bench;
  if (count == 5 && std::strcmp(words[1], "peer") == 0) return RunReader(words[4]);
  const Arguments arguments(count, words);
  GpuWork work{.address = arguments.Text("address"), .driver = arguments.Text("driver", ""), .sizes = {}};
  work.rounds = arguments.Number("rounds", work.rounds);
  std::istringstream sizes(arguments.Text("sizes"));
  for (std::string size; std::getline(sizes, size, ',');) work.sizes.push_back(std::stoull(size));
  MeasureGpu(work);
  return 0;
}
