// SPDX-License-Identifier: Apache-2.0
// Records that a process leaves at any instruction are read whole or not at all.
#include "daemon/memory/shared_pages/record_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <string>

namespace arraybridge::daemon {
namespace {

using testing::ElementsAre;
using testing::Pair;

class RecordFileTest : public testing::Test {
 protected:
  RecordFile& file() { return *file_; }
  // The next process, and the records that it finds, by content.
  std::map<std::string, int> Next() {
    auto adopted = RecordFile::Adopt(UniqueFd(::fcntl(file_->file(), F_DUPFD_CLOEXEC, 3)));
    EXPECT_TRUE(adopted.ok()) << adopted.status().ToString();
    file_ = *std::move(adopted);
    std::map<std::string, int> found;
    damaged_ = file_->Scan([&](const RecordFile::Record& record) {
      ++found[std::string(record.content)];
      places_[std::string(record.content)] = record.place;
    });
    return found;
  }
  // Changes one bit of the file behind the back of everyone.
  void Flip(uint64_t byte, unsigned bit) {
    char value = 0;
    ASSERT_EQ(::pread(file_->file(), &value, 1, static_cast<off_t>(byte)), 1);
    value = static_cast<char>(value ^ (1 << bit));
    ASSERT_EQ(::pwrite(file_->file(), &value, 1, static_cast<off_t>(byte)), 1);
  }

  std::unique_ptr<RecordFile> file_ = *RecordFile::Create();
  uint64_t damaged_ = 0;
  std::map<std::string, RecordFile::Place> places_;
};

TEST_F(RecordFileTest, RecordsAndWordsStay) {
  file().word(3) = 42;
  const auto gone = file().Put(1, "gone");
  file().Put(1, "one, two");
  file().Put(2, std::string(5000, 'x'));
  file().Erase(gone);
  EXPECT_THAT(Next(), ElementsAre(Pair("one, two", 1), Pair(std::string(5000, 'x'), 1)));
  EXPECT_EQ(file().word(3), 42u);
  EXPECT_EQ(damaged_, 0u);
  EXPECT_EQ(file().records(), 2u);
}

TEST_F(RecordFileTest, SlotsAreUsedAgain) {
  for (int i = 0; i < 1000; ++i) file().Erase(file().Put(1, std::string(static_cast<size_t>(i % 300), 'x')));
  const auto first = file().Put(1, "a");
  Next();
  file().Erase(first);
  EXPECT_EQ(file().Put(1, "b"), first);
  EXPECT_THAT(Next(), ElementsAre(Pair("b", 1)));
}

TEST_F(RecordFileTest, AReplacedRecordIsTheLaterOne) {
  const auto place = file().Replace(file().Put(1, "old"), 1, "new");
  EXPECT_NE(place, 0u);
  EXPECT_THAT(Next(), ElementsAre(Pair("new", 1)));
}

TEST_F(RecordFileTest, ADamagedRecordIsLostAndNoOther) {
  file().Put(1, "before");
  const auto place = file().Put(1, std::string(300, 'm'));
  file().Put(1, "behind");
  const uint64_t begin = uint64_t{place} * RecordFile::kSlotBytes;
  for (const uint64_t byte :
       {uint64_t{1}, uint64_t{7}, uint64_t{9}, uint64_t{17}, uint64_t{25}, uint64_t{40}, uint64_t{200}}) {
    Flip(begin + byte, 3);
    const auto found = Next();
    EXPECT_EQ(found.count("before"), 1u) << byte;
    EXPECT_EQ(found.count("behind"), 1u) << byte;
    EXPECT_EQ(found.size(), 2u) << "byte " << byte << " was read as right";
    EXPECT_EQ(damaged_, 1u) << byte;
    // It is whole again, at whatever place.
    file().Put(1, std::string(300, 'm'));
    ASSERT_EQ(Next().size(), 3u);
    for (const auto& [content, at] : std::map(places_)) {
      if (content.size() == 300) file().Erase(at);
    }
    ASSERT_EQ(file().Put(1, std::string(300, 'm')) != 0, true);
    ASSERT_EQ(Next().size(), 3u);
    if (places_.at(std::string(300, 'm')) != place) return;  // the slot of a lost head is not used again
  }
}

TEST_F(RecordFileTest, BytesThatLookLikeAHeadAreNone) {
  // A client's text that contains a copy of a real head, at the place of a head.
  file().Put(1, "model");
  std::string head(RecordFile::kSlotBytes, '\0');
  ASSERT_EQ(::pread(file().file(), head.data(), head.size(), 64 * RecordFile::kSlotBytes),
            static_cast<ssize_t>(head.size()));
  const auto place = file().Put(1, std::string(32, ' ') + head + head + head);
  Flip(uint64_t{place} * RecordFile::kSlotBytes, 5);  // its own head is damaged: the scan looks for the next one
  EXPECT_THAT(Next(), ElementsAre(Pair("model", 1)));
}

TEST_F(RecordFileTest, AnotherMajorVersionIsRefused) {
  Flip(8, 0);  // the major version
  const auto adopted = RecordFile::Adopt(UniqueFd(::fcntl(file().file(), F_DUPFD_CLOEXEC, 3)));
  ASSERT_FALSE(adopted.ok());
  EXPECT_EQ(adopted.status().reason(), "OTHER_LAYOUT");
  EXPECT_THAT(adopted.status().message(), testing::HasSubstr("layout 3.0"));
}

TEST_F(RecordFileTest, AFileOfAnotherKindIsRefused) {
  const UniqueFd other(::memfd_create("other", MFD_CLOEXEC));
  EXPECT_EQ(RecordFile::Adopt(UniqueFd(::fcntl(other.get(), F_DUPFD_CLOEXEC, 3))).status().reason(), "OTHER_LAYOUT");
}

}  // namespace
}  // namespace arraybridge::daemon
