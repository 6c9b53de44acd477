// SPDX-License-Identifier: Apache-2.0
// The limits of what may be forwarded between direct channels, and what is kept for whom.
#include "daemon/broker/channels/kept_ranges.h"

#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/broker/channels/direct_channel_record.h"

namespace arraybridge {
namespace {

class KeptRangesTest : public testing::Test {
 protected:
  using Record = std::shared_ptr<DirectChannelRecord>;

  // The session with this number is its sender.
  Record Make(uint64_t sender = 1) {
    auto record = std::make_shared<DirectChannelRecord>();
    record->pages = *DirectChannel::Create(1, ++made_);
    record->kept = std::make_shared<KeptRanges>(record->pages, SessionId{sender});
    return record;
  }
  std::vector<Record> Make(size_t count, uint64_t sender) {
    std::vector<Record> all;
    while (all.size() < count) all.push_back(Make(sender));
    return all;
  }
  static std::string Link(const Record& into, const Record& source) {
    return KeptRanges::Link(into, source->kept).ToString();
  }
  // Entries of the first one go on in the second, and of that one in the third. The senders are 1, 2 and 3.
  std::array<Record, 3> Chain() {
    const std::array<Record, 3> chain{Make(1), Make(2), Make(3)};
    EXPECT_EQ(Link(chain[1], chain[0]), "OK");
    EXPECT_EQ(Link(chain[2], chain[1]), "OK");
    return chain;
  }
  static bool IsKept(const Record& record, uint64_t bit = 0) {
    const auto files = *record->pages->Export(DirectEnd::kProducer);
    uint64_t kept = 0;
    const auto at = offsetof(direct_channel::ControlBlock, kept) + bit / 64 * sizeof kept;
    EXPECT_EQ(::pread(files[direct_channel::kControl].get(), &kept, sizeof kept, at),
              static_cast<ssize_t>(sizeof kept));
    return (kept >> bit % 64 & 1) != 0;
  }

  uint64_t made_ = 0;
};

TEST_F(KeptRangesTest, HasFourSourcesAtMost) {
  const Record into = Make();
  auto sources = Make(KeptRanges::kSourcesMost + 1, 2);
  const Record more = sources.back();
  sources.pop_back();
  for (const Record& each : sources) EXPECT_EQ(Link(into, each), "OK");
  EXPECT_EQ(Link(into, sources.front()), "OK") << "it is one already";
  EXPECT_NE(Link(into, more).find("too many others"), std::string::npos);
  EXPECT_EQ(into->kept->sources().size(), KeptRanges::kSourcesMost);
  sources.back()->kept->DropPages();  // its sender waits for nothing any more
  EXPECT_EQ(Link(into, more), "OK");
}

TEST_F(KeptRangesTest, AnEntryPassesThroughFourDirectChannelsAtMost) {
  const auto chain = Make(KeptRanges::kRankMost + 1, 1);
  for (size_t i = 1; i < KeptRanges::kRankMost; ++i) EXPECT_EQ(Link(chain[i], chain[i - 1]), "OK") << i;
  EXPECT_NE(Link(chain.back(), chain[KeptRanges::kRankMost - 1]).find("too many"), std::string::npos);
  // Nor if the end of the chain is linked first.
  const auto other = Make(KeptRanges::kRankMost + 1, 1);
  size_t links = 0;
  for (size_t i = KeptRanges::kRankMost; i > 0; --i) links += Link(other[i], other[i - 1]) == "OK" ? 1 : 0;
  EXPECT_LT(links, size_t{KeptRanges::kRankMost});
}

TEST_F(KeptRangesTest, NoEntryComesBack) {
  const auto refused = [](const Record& into, const Record& source) {
    return Link(into, source).find("they have passed through it") != std::string::npos;
  };
  const Record alone = Make();
  EXPECT_TRUE(refused(alone, alone));
  const auto ring = Chain();
  EXPECT_TRUE(refused(ring[0], ring[0]));
  EXPECT_TRUE(refused(ring[0], ring[2]));
  EXPECT_TRUE(refused(ring[0], ring[1]));
}

TEST_F(KeptRangesTest, EntriesMayLieInArenasOfTheSendersOfAllSources) {
  const auto [first, second, third] = Chain();
  for (const uint64_t session : {1, 2, 3}) EXPECT_TRUE(third->kept->MayComeFrom(SessionId{session})) << session;
  EXPECT_FALSE(second->kept->MayComeFrom(SessionId{3})) << "not of those into which they go";
  EXPECT_FALSE(third->kept->MayComeFrom(SessionId{4}));
  std::vector<Record> onward;
  first->kept->AddForwarded(onward);
  EXPECT_EQ(onward, (std::vector<Record>{second, third}));
  first->kept->DropPages();
  EXPECT_FALSE(third->kept->MayComeFrom(SessionId{1})) << "nothing of it is left";
}

TEST_F(KeptRangesTest, AnOrphanKeepsAllRangesOfItsSourceUntilItGoes) {
  const Record source = Make(1);
  const Record one = Make(2);
  const Record other = Make(3);
  EXPECT_EQ(Link(one, source), "OK");
  EXPECT_EQ(Link(other, source), "OK");
  one->kept->Orphan();
  other->kept->Orphan();
  one->kept->Orphan();  // once more
  EXPECT_TRUE(IsKept(source, 0) && IsKept(source, direct_channel::kReturnBits - 1));
  one->kept->DropPages();  // its record is removed
  EXPECT_TRUE(IsKept(source)) << "the other one's receiver may have a range";
  other->kept->DropPages();
  EXPECT_FALSE(IsKept(source));
}

TEST_F(KeptRangesTest, AnOrphanThatIsAsWellASourceGoesWithTheLastOneBehindIt) {
  const auto [first, second, third] = Chain();
  second->kept->Orphan();
  third->kept->Orphan();
  second->kept->DropPages();
  EXPECT_TRUE(IsKept(first)) << "the third one's receiver may have a range";
  third->kept->DropPages();
  EXPECT_FALSE(IsKept(first));
}

TEST_F(KeptRangesTest, TheEndOfTheBrokerFreesNothing) {
  const Record source = Make(1);
  Record orphan = Make(2);
  EXPECT_EQ(Link(orphan, source), "OK");
  orphan->kept->Orphan();
  orphan.reset();
  EXPECT_TRUE(IsKept(source)) << "its receiver lives on";
}

}  // namespace
}  // namespace arraybridge
