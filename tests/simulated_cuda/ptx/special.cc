// SPDX-License-Identifier: Apache-2.0
// Special registers.
#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated::ptx {
namespace {

// A clock runs fast, so that a kernel that spins for a while ends soon.
constexpr uint64_t kTicksPerStep = 10000;

uint64_t Clock(const Thread& t) { return t.block.grid.steps * kTicksPerStep; }

using Reader = uint64_t (*)(const Thread&);

const std::map<std::string_view, Reader>& SpecialRegisters() {
  static const std::map<std::string_view, Reader> readers = {
      {"%tid.x", [](const Thread& t) -> uint64_t { return t.index[0]; }},
      {"%tid.y", [](const Thread& t) -> uint64_t { return t.index[1]; }},
      {"%tid.z", [](const Thread& t) -> uint64_t { return t.index[2]; }},
      {"%ntid.x", [](const Thread& t) -> uint64_t { return t.block.grid.threads[0]; }},
      {"%ntid.y", [](const Thread& t) -> uint64_t { return t.block.grid.threads[1]; }},
      {"%ntid.z", [](const Thread& t) -> uint64_t { return t.block.grid.threads[2]; }},
      {"%ctaid.x", [](const Thread& t) -> uint64_t { return t.block.index[0]; }},
      {"%ctaid.y", [](const Thread& t) -> uint64_t { return t.block.index[1]; }},
      {"%ctaid.z", [](const Thread& t) -> uint64_t { return t.block.index[2]; }},
      {"%nctaid.x", [](const Thread& t) -> uint64_t { return t.block.grid.blocks[0]; }},
      {"%nctaid.y", [](const Thread& t) -> uint64_t { return t.block.grid.blocks[1]; }},
      {"%nctaid.z", [](const Thread& t) -> uint64_t { return t.block.grid.blocks[2]; }},
      {"%laneid", [](const Thread& t) -> uint64_t { return t.lane(); }},
      {"%warpid", [](const Thread& t) -> uint64_t { return t.number / kWarp; }},
      {"%nwarpid", [](const Thread&) -> uint64_t { return 2048 / kWarp; }},
      {"%smid", [](const Thread&) -> uint64_t { return 0; }},
      {"%nsmid", [](const Thread&) -> uint64_t { return 1; }},
      {"%gridid", [](const Thread& t) -> uint64_t { return t.block.grid.number; }},
      {"%lanemask_eq", [](const Thread& t) -> uint64_t { return uint64_t{1} << t.lane(); }},
      {"%lanemask_lt", [](const Thread& t) -> uint64_t { return (uint64_t{1} << t.lane()) - 1; }},
      {"%lanemask_le", [](const Thread& t) -> uint64_t { return (uint64_t{2} << t.lane()) - 1; }},
      {"%lanemask_gt", [](const Thread& t) -> uint64_t { return 0xFFFFFFFF & ~((uint64_t{2} << t.lane()) - 1); }},
      {"%lanemask_ge", [](const Thread& t) -> uint64_t { return 0xFFFFFFFF & ~((uint64_t{1} << t.lane()) - 1); }},
      {"%clock", [](const Thread& t) -> uint64_t { return Clock(t) & 0xFFFFFFFF; }},
      {"%clock_hi", [](const Thread& t) -> uint64_t { return Clock(t) >> 32; }},
      {"%clock64", &Clock},
      {"%globaltimer", &Clock},
      {"%globaltimer_lo", [](const Thread& t) -> uint64_t { return Clock(t) & 0xFFFFFFFF; }},
      {"%globaltimer_hi", [](const Thread& t) -> uint64_t { return Clock(t) >> 32; }},
      {"%dynamic_smem_size", [](const Thread& t) -> uint64_t { return t.block.grid.dynamic_shared; }},
      {"%total_smem_size", [](const Thread& t) -> uint64_t { return t.block.shared.size(); }},
  };
  return readers;
}

}  // namespace

uint64_t (*SpecialRegister(std::string_view name))(const Thread&) {
  const auto found = SpecialRegisters().find(name);
  return found == SpecialRegisters().end() ? nullptr : found->second;
}

}  // namespace arraybridge::simulated::ptx
