// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together: shuffles, votes, matches, reductions. A lane reads another one's registers
// after all have arrived.
#include <algorithm>
#include <array>
#include <bit>

#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated::ptx {
namespace {

using Lanes = std::array<Thread*, kWarp>;
using Members = std::vector<Thread*>;

const Type kNumber{TypeKind::kUnsigned, 4};

Lanes ByLane(const Members& members) {
  Lanes lanes{};
  for (Thread* each : members) lanes[each->lane()] = each;
  return lanes;
}

// Makes the thread wait for the lanes of the mask; without one, for those that can arrive.
void Wait(Decoder& d, bool has_mask, size_t mask_operand, Together together) {
  const Source mask = has_mask ? d.SourceAt(mask_operand, kNumber) : Source{};
  d.run = [shared = std::make_shared<Together>(std::move(together)), mask](Thread& t) {
    t.together = shared.get();
    t.lanes = static_cast<uint32_t>(mask.Of(t));
    t.state = ThreadState::kWithWarp;
  };
}

struct Shuffle {
  char mode = 'i';  // up, down, bfly, idx: by the first letter
  Target to;
  Target valid;
  Source value;
  Source lane;
  Source clamp;
};

// The lane that this one reads, and whether it is in its segment.
uint32_t SourceLane(const Shuffle& shuffle, const Thread& t, bool* valid) {
  const auto distance = static_cast<uint32_t>(shuffle.lane.Of(t)) & 31;
  const auto limits = static_cast<uint32_t>(shuffle.clamp.Of(t));
  const uint32_t segment = limits >> 8 & 31;
  const uint32_t own = t.lane();
  const uint32_t first = own & segment;
  const uint32_t last = first | (limits & 31 & ~segment);
  const auto signed_own = static_cast<int32_t>(own);
  int32_t from = 0;
  switch (shuffle.mode) {
    case 'u':
      from = signed_own - static_cast<int32_t>(distance);
      *valid = from >= static_cast<int32_t>(last);
      break;
    case 'd':
      from = signed_own + static_cast<int32_t>(distance);
      *valid = from <= static_cast<int32_t>(last);
      break;
    case 'b':
      from = static_cast<int32_t>(own ^ distance);
      *valid = from <= static_cast<int32_t>(last);
      break;
    default:
      from = static_cast<int32_t>(first | (distance & ~segment));
      *valid = from <= static_cast<int32_t>(last);
  }
  return *valid ? static_cast<uint32_t>(from) : own;
}

void DecodeShuffle(Decoder& d) {
  const bool sync = d.Has("sync");
  const std::string_view mode = d.OneOf({"up", "down", "bfly", "idx"});
  const Type type = d.OnlyType();
  if (mode.empty()) return d.Refuse("its mode is unknown");
  const size_t sources = sync ? 4 : 3;
  const size_t first = d.operands() - std::min(d.operands(), sources);
  Shuffle shuffle{.mode = mode[0],
                  .to = d.TargetAt(0),
                  .valid = first == 2 ? d.TargetAt(1) : Target{.sink = true},
                  .value = d.SourceAt(first, type),
                  .lane = d.SourceAt(first + 1, kNumber),
                  .clamp = d.SourceAt(first + 2, kNumber)};
  Wait(d, sync, first + 3, [shuffle](const Members& members) {
    std::array<uint64_t, kWarp> values{};
    for (Thread* each : members) values[each->lane()] = shuffle.value.Of(*each);
    const Lanes lanes = ByLane(members);
    for (Thread* each : members) {
      bool valid = false;
      const uint32_t from = SourceLane(shuffle, *each, &valid);
      shuffle.to.Put(*each, lanes[from] == nullptr ? values[each->lane()] : values[from]);
      shuffle.valid.Put(*each, valid ? 1 : 0);
    }
  });
}

void DecodeVote(Decoder& d) {
  const bool sync = d.Has("sync");
  const std::string way(d.OneOf({"all", "any", "uni", "ballot"}));
  d.OnlyType();
  Wait(d, sync, 2, [way, to = d.TargetAt(0), vote = d.SourceAt(1, {TypeKind::kPredicate, 1})](const Members& members) {
    uint64_t ballot = 0;
    for (Thread* each : members) ballot |= static_cast<uint64_t>(vote.Of(*each) != 0) << each->lane();
    const auto yes = static_cast<size_t>(std::popcount(ballot));
    const bool all = yes == members.size();
    const uint64_t result = way == "ballot" ? ballot
                            : way == "all"  ? (all ? 1 : 0)
                            : way == "any"  ? (yes > 0 ? 1 : 0)
                                            : (all || yes == 0 ? 1 : 0);
    for (Thread* each : members) to.Put(*each, result);
  });
}

// The lanes with the same value.
void DecodeMatch(Decoder& d) {
  d.Ignore({"sync"});
  const bool all = d.OneOf({"any", "all"}) == "all";
  const Type type = d.OnlyType();
  const size_t first = d.operands() == 4 ? 2 : 1;
  const Target same = first == 2 ? d.TargetAt(1) : Target{.sink = true};
  const uint64_t mask = type.bytes == 8 ? ~uint64_t{0} : 0xFFFFFFFF;
  Wait(d, true, first + 1,
       [all, to = d.TargetAt(0), same, value = d.SourceAt(first, type), mask](const Members& members) {
         std::vector<uint64_t> results;
         for (Thread* each : members) {
           uint64_t lanes = 0;
           for (Thread* other : members) {
             const bool equal = ((value.Of(*each) ^ value.Of(*other)) & mask) == 0;
             lanes |= static_cast<uint64_t>(equal) << other->lane();
           }
           results.push_back(lanes);
         }
         for (size_t i = 0; i < members.size(); ++i) {
           const bool everyone = static_cast<size_t>(std::popcount(results[i])) == members.size();
           to.Put(*members[i], all && !everyone ? 0 : results[i]);
           same.Put(*members[i], everyone ? 1 : 0);
         }
       });
}

uint64_t Reduced(const std::string& way, uint64_t a, uint64_t b, bool is_signed) {
  if (way == "add") return a + b;
  if (way == "and") return a & b;
  if (way == "or") return a | b;
  if (way == "xor") return a ^ b;
  const bool less = is_signed ? As<int32_t>(a) < As<int32_t>(b) : As<uint32_t>(a) < As<uint32_t>(b);
  return less == (way == "min") ? a : b;
}

void DecodeReduction(Decoder& d) {
  d.Ignore({"sync"});
  const std::string way(d.OneOf({"add", "min", "max", "and", "or", "xor"}));
  const Type type = d.OnlyType();
  if (way.empty() || type.bytes != 4 || type.kind == TypeKind::kFloat) return d.Refuse("its operation is unknown");
  const bool is_signed = type.kind == TypeKind::kSigned;
  Wait(d, true, 2, [way, to = d.TargetAt(0), value = d.SourceAt(1, type), is_signed](const Members& members) {
    uint64_t result = value.Of(*members[0]);
    for (size_t i = 1; i < members.size(); ++i) result = Reduced(way, result, value.Of(*members[i]), is_signed);
    for (Thread* each : members) to.Put(*each, result);
  });
}

void DecodeActiveMask(Decoder& d) {
  d.OnlyType();
  Wait(d, false, 0, [to = d.TargetAt(0)](const Members& members) {
    uint64_t lanes = 0;
    for (Thread* each : members) lanes |= uint64_t{1} << each->lane();
    for (Thread* each : members) to.Put(*each, lanes);
  });
}

void DecodeElect(Decoder& d) {
  d.Ignore({"sync"});
  Wait(d, true, 2, [to = d.TargetAt(0), chosen = d.TargetAt(1)](const Members& members) {
    for (Thread* each : members) {
      to.Put(*each, members[0]->lane());
      chosen.Put(*each, each == members[0] ? 1 : 0);
    }
  });
}

void DecodeWarpBarrier(Decoder& d) {
  d.Ignore({"sync"});
  Wait(d, true, 0, [](const Members&) {});
}

}  // namespace

const Opcodes& TogetherOpcodes() {
  static const Opcodes opcodes = {{"shfl", &DecodeShuffle},          {"vote", &DecodeVote},
                                  {"match", &DecodeMatch},           {"redux", &DecodeReduction},
                                  {"activemask", &DecodeActiveMask}, {"elect", &DecodeElect},
                                  {"bar.warp", &DecodeWarpBarrier}};
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
