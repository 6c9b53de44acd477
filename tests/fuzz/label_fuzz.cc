// SPDX-License-Identifier: Apache-2.0
// Headers of the files of shares, which another program may have changed. Any header has a label or is refused, and any
// label has a header from which the same label is read.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/broker/objects/tiers/stored.h"
#include "daemon/mover/label.h"
#include "daemon/mover/tensors.h"
#include "proto/boundary/result.h"
#include "proto/wire/messages.h"

namespace arraybridge::daemon {
namespace {

void CheckHeaderOf(const label::Label& label) {
  const std::string header = HeaderOf(label);
  AB_CHECK(header.size() == DataStart(label) && HeaderBytes(header) == header.size());
  std::string storage;
  const auto again = LabelIn(header, &storage);
  AB_CHECK(again.ok() && HeaderOf(*again) == header);
  const Rank rank = RankOf(label.rank);
  AB_CHECK(RankOf(NumberOf(rank)) == rank && rank.priority >= -kPriorityMax && rank.priority <= kPriorityMax);
}

}  // namespace
}  // namespace arraybridge::daemon

// The input is a file's start, and also a label.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  using namespace arraybridge;
  using namespace arraybridge::daemon;
  const std::string_view input(reinterpret_cast<const char*>(bytes), count);
  static_cast<void>(HeaderBytes(input));
  std::string storage;
  const auto read = LabelIn(input, &storage);
  if (read.ok()) CheckHeaderOf(*read);
  AB_CHECK(read.ok() || !read.status().message().empty());
  label::Label label;
  wire::Fault fault;
  wire::Reader in(input, &fault);
  if (label::Read(in, label)) CheckHeaderOf(label);
  return 0;
}
