// SPDX-License-Identifier: Apache-2.0
// Bundles without a broker: a plan, its manifest, and manifests that a hostile process wrote.
#include <arraybridge/bundle.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/bundles/manifest.h"

namespace arraybridge {
namespace {

MATCHER_P2(FailsWith, code, reason, "") {
  return !arg.ok() && arg.status().code() == code && arg.status().reason() == reason;
}
MATCHER_P2(FailsWithStatus, code, reason, "") { return arg.code() == code && arg.reason() == reason; }

constexpr DataType kFloat{2, 32, 1};
constexpr DataType kByte{1, 8, 1};

View BytesOf(size_t count) {
  const auto room =
      std::shared_ptr<std::byte>(static_cast<std::byte*>(::operator new (count + 1, std::align_val_t{256})),
                                 [](std::byte* at) { ::operator delete (at, std::align_val_t{256}); });
  auto view = Describe(room.get(), kByte, {static_cast<int64_t>(count)}, {}, {kDeviceCpu, 0, {}}, false, room);
  EXPECT_TRUE(view.ok());
  return *view;
}

// The memory of a bundle, as a broker would place it.
struct Memory {
  explicit Memory(const std::vector<BundleArray>& arrays, std::string_view fingerprint = {},
                  std::string_view metadata = {}) {
    const auto plan = BundlePlan::For(arrays, fingerprint, metadata);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    for (const ArraySpec& spec : plan->specs()) views.push_back(BytesOf(*spec.compact_bytes()));
    EXPECT_TRUE(plan->WriteTo(Placement(std::shared_ptr<Placement::Range>(), views)).ok());
  }
  Bundle bundle() const { return *Bundle::Of(views); }
  template <class Value>
  Value& at(size_t offset) {
    return *reinterpret_cast<Value*>(static_cast<std::byte*>(views[0].data) + offset);
  }
  manifest::Header& header() { return at<manifest::Header>(0); }
  manifest::Entry& entry(size_t index) {
    return at<manifest::Entry>(sizeof(manifest::Header) + index * sizeof(manifest::Entry));
  }

  std::vector<View> views;
};

std::vector<BundleArray> Three() {
  return {{"b", kFloat, {2, 3}, ArrayKind::kParameter},
          {"a", kFloat, {}, ArrayKind::kBuffer},
          {"c", kFloat, {2, 3}, ArrayKind::kOther, "b"}};
}

TEST(BundleTest, ArraysAreFoundByName) {
  Memory memory(Three(), "model 1", "more");
  const Bundle bundle = memory.bundle();
  EXPECT_EQ(bundle.size(), 3U);
  EXPECT_EQ(bundle.fingerprint(), "model 1");
  EXPECT_EQ(bundle.metadata(), "more");
  const char* const names[] = {"a", "b", "c"};
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(*bundle.NameAt(i), names[i]);
    EXPECT_EQ(*bundle.Find(names[i]), i);
  }
  const auto a = *bundle.At(0), b = *bundle.At(1), c = *bundle.At(2);
  EXPECT_EQ(a.kind, ArrayKind::kBuffer);
  EXPECT_EQ(a.view.shape, std::vector<int64_t>{});
  EXPECT_EQ(b.view.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.view.dtype, "float32");
  EXPECT_TRUE(b.view.compact());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.view.data) % 256, 0U);
  EXPECT_NE(a.view.data, b.view.data);
  EXPECT_EQ(c.view.data, b.view.data);
  EXPECT_EQ(c.tie, 1U);
  EXPECT_EQ(b.tie, 1U);
  EXPECT_THAT(bundle.Find("bb"), FailsWith(Code::kNotFound, "ARRAY_NOT_FOUND"));
  EXPECT_THAT(bundle.At(3), FailsWith(Code::kOutOfRange, ""));
}

TEST(BundleTest, TwentyThousandArrays) {
  std::vector<BundleArray> arrays;
  for (int i = 0; i < 20000; ++i)
    arrays.push_back({"layers." + std::to_string(i) + ".weight", kFloat, {i % 7, 2}, ArrayKind::kParameter});
  Memory memory(arrays);
  const Bundle bundle = memory.bundle();
  for (const BundleArray& array : arrays) {
    const auto found = bundle.Find(array.name);
    ASSERT_TRUE(found.ok()) << array.name;
    EXPECT_EQ(bundle.At(*found)->view.shape, array.shape);
  }
}

// Else the slabs of two generations could not be mapped at the same addresses.
TEST(BundleTest, TheSlabOfAnArenaBeginsAtAPage) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{3000}, size_t{5000}}) {
    const auto plan = BundlePlan::For(Three(), std::string(bytes, 'f'), std::string(bytes, 'm'));
    EXPECT_EQ(*plan->specs()[0].compact_bytes() % 4096, 0U) << bytes;
    EXPECT_LT(*plan->specs()[0].compact_bytes(), 2 * bytes + 2 * 4096);
  }
}

TEST(BundleTest, ANameMayBeEmptyOrLong) {
  const std::string longest(Bundle::kNameBytesMax, 'a');
  Memory memory({{longest, kFloat, {2}}, {"", kFloat, {3}}, {"b", kFloat, {4}}});
  const Bundle bundle = memory.bundle();
  EXPECT_EQ(*bundle.NameAt(0), "");
  const std::vector<std::pair<std::string, int64_t>> sizes = {{"", 3}, {longest, 2}, {"b", 4}};
  for (const auto& [name, size] : sizes) {
    const auto found = bundle.Find(name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(bundle.At(*found)->view.shape, std::vector<int64_t>{size});
  }
}

TEST(BundleTest, AnEmptyBundleHasNothing) {
  Memory memory({});
  EXPECT_EQ(memory.bundle().size(), 0U);
  EXPECT_THAT(memory.bundle().Find("a"), FailsWith(Code::kNotFound, "ARRAY_NOT_FOUND"));
}

TEST(BundleTest, APlanRefusesWhatNoBundleCanHave) {
  const auto refused = [](std::vector<BundleArray> arrays) { return BundlePlan::For(arrays); };
  const auto invalid = FailsWith(Code::kInvalidArgument, "INVALID_BUNDLE");
  EXPECT_THAT(refused({{std::string(Bundle::kNameBytesMax + 1, 'a'), kFloat, {1}}}), invalid);
  EXPECT_THAT(refused({{"\xff", kFloat, {1}}}), invalid);
  EXPECT_THAT(refused({{std::string("a\0b", 3), kFloat, {1}}}), invalid);
  EXPECT_THAT(refused({{"a", kFloat, {1}}, {"a", kFloat, {2}}}), invalid);
  EXPECT_THAT(refused({{"a", {99, 32, 1}, {1}}}), invalid);
  EXPECT_THAT(refused({{"a", kFloat, {-1}}}), invalid);
  EXPECT_THAT(refused({{"a", kFloat, {int64_t{1} << 40, int64_t{1} << 40}}}), invalid);
  EXPECT_THAT(refused({{"a", kFloat, {int64_t{1} << 59}}, {"b", kFloat, {int64_t{1} << 59}}}), invalid);
  EXPECT_THAT(refused({{"a", kFloat, std::vector<int64_t>(65, 1)}}), invalid);
  EXPECT_THAT(refused({{"a", kFloat, {1}, ArrayKind{3}}}), invalid);
  EXPECT_THAT(refused({{"a", kFloat, {1}, ArrayKind::kOther, "b"}}), invalid);
  EXPECT_THAT(refused({{"a", kFloat, {1}, ArrayKind::kOther, "b"}, {"b", kFloat, {2}}}), invalid);
  EXPECT_THAT(
      refused(
          {{"a", kFloat, {1}, ArrayKind::kOther, "b"}, {"b", kFloat, {1}, ArrayKind::kOther, "c"}, {"c", kFloat, {1}}}),
      invalid);
}

TEST(BundleTest, AShareThatIsNoBundleIsRefused) {
  const auto none = FailsWith(Code::kInvalidArgument, "NOT_A_BUNDLE");
  EXPECT_THAT(Bundle::Of({}), none);
  EXPECT_THAT(Bundle::Of({BytesOf(100), BytesOf(100), BytesOf(100)}), none);
  EXPECT_THAT(Bundle::Of({BytesOf(63), BytesOf(100)}), none);
  EXPECT_THAT(Bundle::Of({BytesOf(64), BytesOf(100)}), none);
  Memory memory(Three());
  memory.views[1].type = kFloat;
  EXPECT_THAT(Bundle::Of(memory.views), none);
}

TEST(BundleTest, OtherVersions) {
  Memory memory(Three());
  memory.header().minor = 7;
  EXPECT_TRUE(Bundle::Of(memory.views).ok());
  memory.header().major = 2;
  EXPECT_THAT(Bundle::Of(memory.views), FailsWith(Code::kUnimplemented, "BUNDLE_VERSION"));
}

TEST(BundleTest, AHostileHeaderIsRefused) {
  const auto malformed = FailsWith(Code::kInvalidArgument, "MALFORMED_BUNDLE");
  Memory memory(Three(), "x", "y");
  memory.header().entries = uint64_t{1} << 60;
  EXPECT_THAT(Bundle::Of(memory.views), malformed);
  memory.header().entries = 3;
  memory.header().entry_bytes = 1;
  EXPECT_THAT(Bundle::Of(memory.views), malformed);
  memory.header().entry_bytes = 0xffffffff;
  EXPECT_THAT(Bundle::Of(memory.views), malformed);
  memory.header().entry_bytes = sizeof(manifest::Entry);
  memory.header().fingerprint = {0xfffffff0, 0xfffffff0};
  EXPECT_THAT(Bundle::Of(memory.views), malformed);
}

// Otherwise a manifest of 10 MB would cost its reader 1.2 GB for names, or 1.8 GB for shapes.
TEST(BundleTest, PartsThatShareBytesAreRefused) {
  const std::vector<void (*)(Memory&)> attacks = {
      [](Memory& memory) {
        memory.entry(2).name = {memory.entry(1).name.offset + 1, 2};
      },  // "c" and "cm"
      [](Memory& memory) {
        memory.entry(0).shape = memory.entry(1).shape;
        memory.entry(0).dimensions = 2;
      },
      [](Memory& memory) { memory.entry(0).dimensions = 64; },
      [](Memory& memory) { memory.header().metadata = memory.header().fingerprint; },
  };
  for (size_t i = 0; i < attacks.size(); ++i) {
    Memory memory(Three(), "model", "m");
    // Without the padding, in which parts could have bytes of their own.
    memory.views[0].shape = {int64_t{memory.header().metadata.offset} + memory.header().metadata.bytes};
    ASSERT_TRUE(Bundle::Of(memory.views).ok());
    attacks[i](memory);
    const auto bundle = Bundle::Of(memory.views);
    EXPECT_THAT(bundle, FailsWith(Code::kInvalidArgument, "MALFORMED_BUNDLE")) << i;
    EXPECT_THAT(bundle.status().message(), ::testing::HasSubstr("share bytes")) << i;
  }
}

TEST(BundleTest, NamesThatFindCannotFindAreRefused) {
  const std::vector<std::pair<void (*)(Memory&), const char*>> attacks = {
      {[](Memory& memory) {
         memory.entry(0).name = {0xffffff00, 16};
       },
       "outside"},
      {[](Memory& memory) { memory.entry(0).name.bytes = 0xffffffff; }, "too long"},
      {[](Memory& memory) { memory.entry(1).name = memory.entry(0).name; }, "two arrays are named 'a'"},
      {[](Memory& memory) { std::swap(memory.entry(0).name, memory.entry(1).name); }, "not sorted: 'a' follows 'b'"},
      {[](Memory& memory) { memory.at<char>(memory.entry(2).name.offset) = '\xff'; }, "UTF-8"},
      {[](Memory& memory) { memory.at<char>(memory.entry(0).name.offset) = '\0'; }, "NUL"},
  };
  for (const auto& [attack, text] : attacks) {
    Memory memory(Three());
    attack(memory);
    const auto bundle = Bundle::Of(memory.views);
    EXPECT_THAT(bundle, FailsWith(Code::kInvalidArgument, "MALFORMED_BUNDLE")) << text;
    EXPECT_THAT(bundle.status().message(), ::testing::HasSubstr(text));
  }
}

// Otherwise a slab of 1 MB would cost a reader that copies a thousand arrays 1 GB.
TEST(BundleTest, ArraysShareBytesOnlyIfTheyAreTied) {
  Memory memory({{"a", kByte, {600}}, {"b", kByte, {600}}, {"none", kByte, {0}}});
  memory.entry(2).offset = memory.entry(1).offset;
  EXPECT_TRUE(Bundle::Of(memory.views).ok()) << "an array without elements has no bytes to share";
  for (const uint64_t offset : {uint64_t{0}, uint64_t{512}}) {
    memory.entry(1).offset = offset;
    const auto bundle = Bundle::Of(memory.views);
    EXPECT_THAT(bundle, FailsWith(Code::kInvalidArgument, "MALFORMED_BUNDLE")) << offset;
    EXPECT_THAT(bundle.status().message(), ::testing::HasSubstr("'a' and 'b' share bytes and are not tied"));
  }
  memory.entry(0).offset = 768;
  memory.entry(1).offset = 0;
  EXPECT_TRUE(Bundle::Of(memory.views).ok()) << "in any order";
  memory.entry(0).offset = memory.entry(1).offset;
  memory.entry(1).tie = 0;
  EXPECT_TRUE(Bundle::Of(memory.views)->At(1).ok());
}

TEST(BundleTest, AnArrayHasAtMost64Dimensions) {
  Memory memory(Three(), {}, std::string(65 * 8, '\0'));
  memory.header().metadata = {};  // its bytes are those of the shape
  memory.entry(0).dimensions = 64;
  EXPECT_TRUE(memory.bundle().At(0).ok());
  memory.entry(0).dimensions = 65;
  EXPECT_THAT(memory.bundle().At(0), FailsWith(Code::kInvalidArgument, "MALFORMED_BUNDLE"));
  EXPECT_TRUE(memory.bundle().At(1).ok());
}

TEST(BundleTest, AChangeAfterTheCheckReachesNoReader) {
  Memory memory(Three(), "model 1");
  const Bundle bundle = memory.bundle();
  std::memset(memory.views[0].data, 0xff, memory.views[0].nbytes());
  EXPECT_EQ(bundle.size(), 3U);
  EXPECT_EQ(bundle.fingerprint(), "model 1");
  EXPECT_EQ(*bundle.Find("b"), 1U);
  EXPECT_EQ(bundle.At(2)->view.shape, (std::vector<int64_t>{2, 3}));
}

TEST(BundleTest, ContentIsCheckedBeforeItIsPublished) {
  Memory memory(Three());
  EXPECT_TRUE(Bundle::CheckContent(Bundle::kStructure, memory.views).ok());
  memory.entry(1).name = memory.entry(0).name;
  EXPECT_THAT(Bundle::CheckContent(Bundle::kStructure, memory.views),
              FailsWithStatus(Code::kInvalidArgument, "MALFORMED_BUNDLE"));
  EXPECT_TRUE(Bundle::CheckContent("", memory.views).ok()) << "two arrays of bytes";
  memory.header().major = 2;
  EXPECT_TRUE(Bundle::CheckContent(Bundle::kStructure, memory.views).ok()) << "of a later version";
  memory.header().magic = 0;
  EXPECT_TRUE(Bundle::CheckContent(Bundle::kStructure, memory.views).ok()) << "a tree with these two keys";
}

// Otherwise it depended on the call which of the two a reader gets.
TEST(BundleTest, ATieToAnotherShapeOrTypeIsRefused) {
  const auto malformed = FailsWith(Code::kInvalidArgument, "MALFORMED_BUNDLE");
  Memory memory(Three());
  EXPECT_TRUE(memory.bundle().At(2).ok());
  memory.entry(2).dimensions = 1;
  EXPECT_THAT(memory.bundle().At(2), malformed);
  memory.entry(2).dimensions = 2;
  memory.entry(2).code = 0;
  EXPECT_THAT(memory.bundle().At(2), malformed);
  EXPECT_TRUE(memory.bundle().At(1).ok());
}

// An entry of a later minor version, or a broken one: the others are as they were.
TEST(BundleTest, AHostileEntryIsRefusedAlone) {
  const auto malformed = FailsWith(Code::kInvalidArgument, "MALFORMED_BUNDLE");
  const std::vector<void (*)(manifest::Entry&)> attacks = {
      [](manifest::Entry& entry) { entry.shape = 0xfffffff8; },
      [](manifest::Entry& entry) { entry.offset = uint64_t{1} << 63; },
      [](manifest::Entry& entry) { entry.offset = ~uint64_t{0} - 255; },
      [](manifest::Entry& entry) { entry.offset += 1; },
      [](manifest::Entry& entry) { entry.code = 200; },
      [](manifest::Entry& entry) { entry.lanes = 9; },
      [](manifest::Entry& entry) { entry.lanes = 0xff01; },  // it would reach into the next one's bytes
      [](manifest::Entry& entry) { entry.bits = 0; },
      [](manifest::Entry& entry) { entry.kind = 77; },
      [](manifest::Entry& entry) { entry.slab = 1; },
      [](manifest::Entry& entry) { entry.tie = 77; },
      [](manifest::Entry& entry) { entry.tie = 1; },
  };
  for (size_t i = 0; i < attacks.size(); ++i) {
    Memory memory(Three());
    attacks[i](memory.entry(0));
    EXPECT_THAT(memory.bundle().At(0), malformed) << i;
    EXPECT_TRUE(memory.bundle().At(1).ok()) << i;
    EXPECT_TRUE(memory.bundle().At(2).ok()) << i;
  }
  Memory memory(Three());
  for (const int64_t size : {int64_t{-1}, int64_t{1} << 62}) {
    memory.at<int64_t>(memory.entry(1).shape) = size;
    EXPECT_THAT(memory.bundle().At(1), malformed);
    EXPECT_TRUE(memory.bundle().At(0).ok());
  }
}

}  // namespace
}  // namespace arraybridge
