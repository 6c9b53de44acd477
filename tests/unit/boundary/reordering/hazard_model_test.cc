// SPDX-License-Identifier: Apache-2.0
// Explores every run of a client that finds and holds a share while the broker withdraws it and writes the record of
// another one into its place (machine.h). The client's steps, and those of the broker on the hazard page, are the
// functions of proto/boundary/layouts, compiled for the machine. A confirmed hold must have read the bytes and the
// record of the share that it confirmed. Omitting a step that the argument needs must lead to an error; otherwise the
// test would prove nothing.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "proto/boundary/layouts/catalogue.h"
#include "proto/boundary/layouts/hazard.h"
#include "tests/unit/boundary/reordering/machine.h"

namespace arraybridge {
namespace {

using catalogue::RecordState;
using catalogue::StateOf;
using machine::Machine;
using machine::Relaxed;
using machine::Weaker;
using machine::WithoutFence;
using machine::WithoutStore;

constexpr auto kRelaxed = std::memory_order_relaxed;

enum Thread : size_t { kClient, kBroker };
constexpr size_t kAfterHold = 0;    // of the client's fences
constexpr size_t kAfterRetire = 0;  // of the broker's

struct Outcome {
  uint64_t runs = 0;       // distinct final states
  uint64_t confirmed = 0;  // final states with a confirmed hold
  uint64_t wrong = 0;      // of these, final states in which the client has read something of another share
};

// A catalogue of one record. The generation of its state says which share's name, size and bytes are right.
class HazardModelTest : public testing::Test {
 protected:
  HazardModelTest() {
    reinterpret_cast<catalogue::Header*>(pages_.data())->index_bits = catalogue::kIndexBitsMin;
    const uint64_t word = catalogue::IndexWord(kName, 0);
    std::memcpy(pages_.data() + kExtent.index_offset(catalogue::kIndexBitsMin), &word, sizeof word);
    record_.hash_low = kName.low;
    record_.size = 1;
    record_.state = StateOf(1, RecordState::kLive);
  }

  // The next share has the same name, or another one.
  Outcome Explore(const Weaker& weaker = {}) {
    Outcome outcome;
    for (const uint64_t next_name : {kName.low, kName.low + 1}) {
      Machine({[&] { Client(); }, [&] { Broker(next_name); }}, weaker).Explore([&] {
        ++outcome.runs;
        if (!confirmed_) return;
        ++outcome.confirmed;
        const uint64_t share = catalogue::GenerationOf(found_.state);
        const bool has_name = share == 1 || next_name == kName.low;
        outcome.wrong += has_name && size_ == share && byte_ == share ? 0 : 1;
      });
    }
    return outcome;
  }

  static constexpr Hash128 kName{.low = 0, .high = 0};
  static constexpr catalogue::Extent kExtent{1};

  alignas(128) std::array<std::byte, kExtent.bytes()> pages_{};
  catalogue::Record& record_ = *reinterpret_cast<catalogue::Record*>(pages_.data() + kExtent.records_offset());
  hazard::Page holds_{};
  uint64_t bytes_ = 1;  // that the record names

 private:
  void Client() {
    confirmed_ = false;
    found_ = catalogue::Find({pages_.data(), kExtent}, kName);
    if (!found_ || !hazard::Claim(holds_, 0, found_.slot, found_.state, record_.state)) return;
    confirmed_ = true;
    size_ = Load(record_.size, kRelaxed);
    byte_ = Load(bytes_, kRelaxed);
    hazard::Clear(holds_, 0);
  }
  // From kWriting on, the steps of Catalogue::Write.
  void Broker(uint64_t next_name) {
    hazard::Retire(record_.state);
    if (hazard::Has(holds_, hazard::WordOf(0, 1))) return;
    Store(record_.state, StateOf(2, RecordState::kWriting), kRelaxed);
    ThreadFence(std::memory_order_release);
    Store(record_.hash_low, next_name, kRelaxed);
    Store(record_.size, 2, kRelaxed);
    Store(bytes_, 2, kRelaxed);
    Store(record_.state, StateOf(2, RecordState::kLive), std::memory_order_release);
  }

  // What the client has seen.
  catalogue::Found found_;
  bool confirmed_ = false;
  uint64_t size_ = 0;
  uint64_t byte_ = 0;
};

TEST_F(HazardModelTest, NoRunReadsAnotherShare) {
  const auto outcome = Explore();
  EXPECT_EQ(outcome.wrong, 0u);
  EXPECT_GT(outcome.confirmed, 0u);
  EXPECT_LT(outcome.confirmed, outcome.runs) << "some holds come too late and are cleared";
}

TEST_F(HazardModelTest, EveryStepOfTheArgumentIsNeeded) {
  const auto wrong = [this](const Weaker& weaker) { return Explore(weaker).wrong; };
  EXPECT_GT(wrong(WithoutStore(kClient, &holds_.words[0])), 0u) << "nothing is held";
  EXPECT_GT(wrong(WithoutStore(kClient, &holds_.high)), 0u) << "the broker compares no word";
  EXPECT_GT(wrong(WithoutFence(kClient, kAfterHold)), 0u) << "the client checks the state before its hold is visible";
  EXPECT_GT(wrong(WithoutFence(kBroker, kAfterRetire)), 0u)
      << "the broker checks holds before the dead state is visible";
  EXPECT_GT(wrong(Relaxed(kClient, &holds_.words[0])), 0u) << "bytes are read after the hold has ended";
  EXPECT_GT(wrong(Relaxed(kBroker, &record_.state)), 0u) << "the next share is visible before its bytes";
}

}  // namespace
}  // namespace arraybridge
