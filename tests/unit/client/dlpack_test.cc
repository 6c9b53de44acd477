// SPDX-License-Identifier: Apache-2.0
#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <set>
#include <thread>

#include <arraybridge/view.h>

#include "client/arrays/dlpack_block.h"
#include "client/memory/layout.h"

namespace arraybridge {
namespace {

float g_floats[64];

// Counts how often the owner was dropped.
std::shared_ptr<const void> Owner(std::atomic<int>& drops) {
  return {&drops, [&drops](const void*) { ++drops; }};
}

View FloatsView(std::vector<int64_t> shape, std::shared_ptr<const void> owner = nullptr) {
  return *Describe(g_floats, {2, 32, 1}, std::move(shape), {}, {}, false, std::move(owner));
}

// A producer of tensors in which a test can corrupt any field.
struct Foreign {
  std::vector<int64_t> shape{2, 3};
  std::vector<int64_t> strides;
  int deletes = 0;
  DLManagedTensorVersioned tensor{};

  Foreign() {
    tensor.version = {1, 0};
    tensor.manager_ctx = this;
    tensor.deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->deletes; };
    tensor.dl_tensor.data = g_floats;
    tensor.dl_tensor.device = {kDLCPU, 0};
    tensor.dl_tensor.dtype = {kDLFloat, 32, 1};
  }
  DLManagedTensorVersioned* Made() {
    DLTensor& dl = tensor.dl_tensor;
    dl.ndim = static_cast<int32_t>(shape.size());
    dl.shape = shape.data();
    dl.strides = strides.empty() ? nullptr : strides.data();
    return &tensor;
  }
  Result<View> Import() { return ImportVersioned(Made()); }
  void ExpectRefused(const std::string& named) {
    const auto view = Import();
    ASSERT_FALSE(view.ok());
    EXPECT_EQ(view.status().code(), Code::kInvalidArgument);
    EXPECT_NE(view.status().message().find(named), std::string::npos) << view.status().message();
    EXPECT_EQ(deletes, 0) << "the producer still owns a refused tensor";
  }
};

TEST(Export, WritesWhatTheStrictestConsumerNeeds) {
  auto* tensor = ExportVersioned(FloatsView({2, 1, 3}));
  EXPECT_EQ(tensor->version.major, 1u);
  EXPECT_EQ(tensor->version.minor, 3u);
  EXPECT_EQ(tensor->flags, 0u);
  const DLTensor& dl = tensor->dl_tensor;
  EXPECT_EQ(dl.data, g_floats);
  EXPECT_EQ(dl.byte_offset, 0u);
  EXPECT_EQ(dl.ndim, 3);
  EXPECT_EQ(std::vector<int64_t>(dl.shape, dl.shape + 3), (std::vector<int64_t>{2, 1, 3}));
  EXPECT_EQ(std::vector<int64_t>(dl.strides, dl.strides + 3), (std::vector<int64_t>{3, 3, 1}));
  ASSERT_NE(tensor->deleter, nullptr);
  tensor->deleter(tensor);
}

TEST(Export, EveryRankUpToTheLimit) {
  for (size_t rank = 0; rank <= layout::kRankMax; ++rank) {
    auto* tensor = ExportVersioned(FloatsView(std::vector<int64_t>(rank, 1)));
    EXPECT_EQ(tensor->dl_tensor.ndim, static_cast<int32_t>(rank));
    for (size_t i = 0; i < rank; ++i) EXPECT_EQ(tensor->dl_tensor.strides[i], 1);
    tensor->deleter(tensor);
  }
}

TEST(Export, NothingHasNoAddress) {
  auto* tensor = ExportVersioned(FloatsView({3, 0}));
  EXPECT_EQ(tensor->dl_tensor.data, nullptr);
  EXPECT_NE(tensor->dl_tensor.strides, nullptr);
  tensor->deleter(tensor);
}

TEST(Export, SaysReadOnlyAndCopied) {
  View view = FloatsView({2});
  view.read_only = true;
  auto* tensor = ExportVersioned(view, true);
  EXPECT_EQ(tensor->flags, kDlpackReadOnly | kDlpackIsCopied);
  tensor->deleter(tensor);
}

TEST(Export, LegacyCannotSayReadOnly) {
  View view = FloatsView({2});
  view.read_only = true;
  EXPECT_EQ(ExportLegacy(view).status().code(), Code::kFailedPrecondition);
  view.legacy_may_alias_read_only = true;
  const auto tensor = ExportLegacy(view);
  ASSERT_TRUE(tensor.ok());
  (*tensor)->deleter(*tensor);
}

TEST(Deleter, DropsTheOwnerOnceHoweverOftenItRuns) {
  std::atomic<int> drops = 0;
  auto* tensor = ExportVersioned(FloatsView({2}, Owner(drops)));
  EXPECT_EQ(drops, 0);
  tensor->deleter(tensor);
  tensor->deleter(tensor);
  EXPECT_EQ(drops, 1);
  auto legacy = ExportLegacy(FloatsView({2}, Owner(drops)));
  (*legacy)->deleter(*legacy);
  (*legacy)->deleter(*legacy);
  EXPECT_EQ(drops, 2);
}

TEST(Deleter, LateSecondCallDoesNotReachTheNextExport) {
  std::atomic<int> drops = 0;
  for (size_t i = 0; i < 4 * kReleasedBlocksKept; ++i) {
    auto* late = ExportVersioned(FloatsView({2}));
    late->deleter(late);
    auto* next = ExportVersioned(FloatsView({2}, Owner(drops)));
    late->deleter(late);
    ASSERT_EQ(drops, static_cast<int>(i));
    next->deleter(next);
  }
}

TEST(Deleter, SecondCallDoesNotListTheBlockTwice) {
  using Pool = BlockPool<DLManagedTensor, 2>;
  const size_t count = 2 * kReleasedBlocksKept;
  std::vector<Block<DLManagedTensor, 2>*> blocks;
  for (size_t i = 0; i < count; ++i) blocks.push_back(Pool::Instance().Take());
  for (auto* block : blocks) Pool::Delete(&block->tensor);
  for (auto* block : blocks) Pool::Delete(&block->tensor);
  std::set<Block<DLManagedTensor, 2>*> taken;
  for (size_t i = 0; i < 2 * count; ++i) taken.insert(Pool::Instance().Take());
  EXPECT_EQ(taken.size(), 2 * count) << "one block was given to two exports";
  for (auto* block : taken) Pool::Delete(&block->tensor);
}

TEST(Deleter, EightThreadsReleaseOnce) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> drops = 0;
    auto* tensor = ExportVersioned(FloatsView({2}, Owner(drops)));
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([tensor] { tensor->deleter(tensor); });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(drops, 1);
  }
}

TEST(Deleter, ReleasedBlocksLiveAgainAndAreBounded) {
  using Pool = BlockPool<DLManagedTensor, 3>;  // a pool of its own, so that other tests do not change the count
  std::vector<Block<DLManagedTensor, 3>*> blocks;
  for (size_t i = 0; i <= kReleasedBlocksMax; ++i) blocks.push_back(Pool::Instance().Take());
  auto* oldest = blocks[1];
  for (auto* block : blocks) Pool::Delete(&block->tensor);  // one more than is kept, so blocks[0] is freed
  auto* reused = Pool::Instance().Take();
  EXPECT_EQ(reused, oldest);
  Pool::Delete(&reused->tensor);
}

TEST(Import, NormalisesWhatProducersSend) {
  Foreign foreign;
  foreign.tensor.dl_tensor.byte_offset = 8;
  auto view = foreign.Import();  // NULL strides
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(view->data, g_floats + 2);
  EXPECT_EQ(view->strides, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(view->dtype, "float32");
  EXPECT_FALSE(view->read_only);
  view->owner.reset();
  EXPECT_EQ(foreign.deletes, 1);
}

TEST(Import, OddStridesOfSizeOneBecomeCompact) {
  Foreign foreign;
  foreign.shape = {2, 1, 3};
  foreign.strides = {3, -77, 1};
  EXPECT_EQ(foreign.Import()->strides, (std::vector<int64_t>{3, 3, 1}));
  foreign.strides = {1, INT64_MIN, 2};
  EXPECT_EQ(foreign.Import()->strides, (std::vector<int64_t>{1, 3, 2}));
}

TEST(Import, NegativeAndZeroStridesAreKept) {
  Foreign foreign;
  foreign.strides = {0, -1};
  EXPECT_EQ(foreign.Import()->strides, (std::vector<int64_t>{0, -1}));
}

TEST(Import, NothingAtNullIsLegal) {
  Foreign foreign;
  foreign.shape = {0, 5};
  foreign.tensor.dl_tensor.data = nullptr;
  EXPECT_TRUE(foreign.Import().ok());
  foreign.tensor.dl_tensor.data = g_floats;
  EXPECT_EQ(foreign.Import()->data, nullptr);
}

TEST(Import, EveryRankUpToTheLimit) {
  for (const size_t rank : {size_t{0}, size_t{1}, layout::kRankMax}) {
    Foreign foreign;
    foreign.shape.assign(rank, 1);
    EXPECT_TRUE(foreign.Import().ok()) << rank;
  }
  Foreign foreign;
  foreign.shape.assign(65, 1);
  foreign.ExpectRefused("65");
}

TEST(Import, KeepsReadOnlyIgnoresUnknownFlags) {
  Foreign foreign;
  foreign.tensor.flags = kDlpackReadOnly | (1u << 20);
  const auto view = foreign.Import();
  EXPECT_TRUE(view->read_only);
}

TEST(Import, WhatWasCopiedForOneIsSharedByManyFromHereOn) {
  Foreign foreign;
  foreign.tensor.flags = kDlpackIsCopied;
  const auto view = foreign.Import();
  ASSERT_TRUE(view.ok());
  auto* tensor = ExportVersioned(*view);
  EXPECT_EQ(tensor->flags, 0u);
  tensor->deleter(tensor);
}

TEST(Import, RelabelsPinnedAndManaged) {
  Foreign foreign;
  foreign.tensor.dl_tensor.device = {kDLCUDAHost, 3};
  EXPECT_EQ(foreign.Import()->device, (Device{kDeviceCpu, 0, {}}));
  foreign.tensor.dl_tensor.device = {kDLCUDAManaged, 3};
  EXPECT_EQ(foreign.Import()->device, (Device{kDeviceCuda, 3, {}}));
  foreign.tensor.dl_tensor.device = {kDLCPU, 1};
  EXPECT_EQ(foreign.Import()->device, (Device{kDeviceCpu, 0, {}}));
}

TEST(Import, RefusesByName) {
  Foreign lanes;
  lanes.tensor.dl_tensor.dtype.lanes = 2;
  lanes.ExpectRefused("2 lanes");
  Foreign null;
  null.tensor.dl_tensor.data = nullptr;
  null.ExpectRefused("NULL");
  Foreign negative;
  negative.shape = {2, -3};
  negative.ExpectRefused("-3");
  Foreign overflow;
  overflow.shape = {INT64_MAX, INT64_MAX};
  overflow.ExpectRefused("overflow");
  Foreign bytes;
  bytes.shape = {int64_t{1} << 61};
  bytes.ExpectRefused("overflow");
  Foreign opaque;
  opaque.tensor.dl_tensor.dtype = {kDLOpaqueHandle, 64, 1};
  opaque.ExpectRefused("code 3");
  Foreign unknown;
  unknown.tensor.dl_tensor.dtype = {99, 32, 1};
  unknown.ExpectRefused("code 99");
  Foreign width;
  width.tensor.dl_tensor.dtype = {kDLFloat4_e2m1fn, 8, 1};
  width.ExpectRefused("8 bits");
  Foreign no_bits;
  no_bits.tensor.dl_tensor.dtype = {kDLFloat, 0, 1};
  no_bits.ExpectRefused("0 bits");
  Foreign device;
  device.tensor.dl_tensor.device = {kDLOpenCL, 0};
  device.ExpectRefused("(4, 0)");
  Foreign padded;
  padded.tensor.dl_tensor.dtype = {kDLFloat4_e2m1fn, 4, 1};
  padded.tensor.flags = kDlpackSubbytePadded;
  padded.ExpectRefused("padded");
  Foreign offset;
  offset.tensor.dl_tensor.byte_offset = std::numeric_limits<uint64_t>::max();
  offset.ExpectRefused("byte_offset");
}

TEST(Import, RefusesHostileStrides) {
  for (const int64_t stride : {INT64_MIN, INT64_MAX, INT64_MIN / 2, INT64_MAX / 2}) {
    Foreign foreign;
    foreign.shape = {3, 2};
    foreign.strides = {stride, stride};
    foreign.ExpectRefused("stride");
  }
  Foreign packed;
  packed.shape = {4};
  packed.strides = {2};
  packed.tensor.dl_tensor.dtype = {kDLFloat4_e2m1fn, 4, 1};
  packed.ExpectRefused("compact");
}

TEST(Import, RefusesRankWithoutShapeAndNegativeRank) {
  Foreign foreign;
  foreign.tensor.dl_tensor.ndim = 1;
  EXPECT_FALSE(ImportVersioned(&foreign.tensor).ok());
  foreign.tensor.dl_tensor.ndim = -1;
  EXPECT_FALSE(ImportVersioned(&foreign.tensor).ok());
  EXPECT_EQ(foreign.deletes, 0);
}

TEST(Import, ForeignMajorReadsNothingAfterFlags) {
  // Only the head is allocated, so ASan detects a read behind it.
  const auto head = std::make_unique<std::byte[]>(offsetof(DLManagedTensorVersioned, dl_tensor));
  auto* tensor = reinterpret_cast<DLManagedTensorVersioned*>(head.get());
  tensor->version = {2, 0};
  const auto view = ImportVersioned(tensor);
  ASSERT_FALSE(view.ok());
  EXPECT_NE(view.status().message().find("2.0"), std::string::npos);
}

TEST(Import, NullDeleterIsLegal) {
  Foreign foreign;
  foreign.tensor.deleter = nullptr;
  auto view = foreign.Import();
  ASSERT_TRUE(view.ok());
  view->owner.reset();
}

TEST(Import, LegacyTensorsToo) {
  auto exported = ExportLegacy(FloatsView({2, 3}));
  const auto view = ImportLegacy(*exported);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->data, g_floats);
  EXPECT_FALSE(view->read_only);
}

TEST(Plain, IsWhatExportWouldSay) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {64}, {2, 3}, {1, 1}}) {
    DLManagedTensorVersioned* const ours = ExportVersioned(FloatsView(shape));
    EXPECT_TRUE(IsPlain(*ours));
    ours->deleter(ours);
  }
  Foreign scalar;
  scalar.shape = {};
  EXPECT_TRUE(IsPlain(*scalar.Made()));
  Foreign read_only;
  read_only.strides = {3, 1};
  read_only.tensor.flags = kDlpackReadOnly;
  EXPECT_TRUE(IsPlain(*read_only.Made()));
}

TEST(Plain, IsNothingElse) {
  const auto is_plain = [](auto spoil) {
    Foreign foreign;
    foreign.strides = {3, 1};
    EXPECT_TRUE(IsPlain(*foreign.Made()));
    spoil(foreign);
    return IsPlain(*foreign.Made());
  };
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.version.major = 2; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.flags = 2; })) << "made for one consumer alone";
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.flags = uint64_t{1} << 63; })) << "an unknown flag";
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.deleter = nullptr; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.dl_tensor.device = {kDLCUDAHost, 0}; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.dl_tensor.device.device_id = 1; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.dl_tensor.data = nullptr; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.dl_tensor.byte_offset = 4; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.dl_tensor.dtype.lanes = 4; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.tensor.dl_tensor.dtype.bits = 0; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.strides.clear(); })) << "strides are never NULL in ours";
  EXPECT_FALSE(is_plain([](Foreign& f) { f.strides = {1, 2}; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.strides = {-3, 1}; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.shape = {0, 3}; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.shape = {-2, 3}; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.shape = {INT64_MAX, 3}; }));
  EXPECT_FALSE(is_plain([](Foreign& f) { f.shape.assign(65, 1), f.strides.assign(65, 1); }));
}

TEST(RoundTrip, EveryTypeOfDlpack) {
  for (int code = 0; code < 20; ++code) {
    for (const int bits : {4, 6, 8, 16, 32, 64, 128}) {
      const DataType type{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
      if (NameOf(type).empty()) continue;
      auto* tensor = ExportVersioned(*Describe(g_floats, type, {4}, {}, {}, false, nullptr));
      const auto view = ImportVersioned(tensor);
      ASSERT_TRUE(view.ok());
      EXPECT_EQ(view->type, type);
    }
  }
}

Result<View> NoMapping(const View& /*view*/) { return ResourceExhausted("no mapping"); }

TEST(ExportedFrom, IsTheViewThatWasExported) {
  std::atomic<int> drops{0};
  for (const size_t rank : {size_t{2}, size_t{9}}) {
    std::vector<int64_t> shape(rank, 1);
    shape.back() = 7;
    View view = FloatsView(shape, Owner(drops));
    view.read_only = view.constant = view.legacy_may_alias_read_only = true;
    view.copy_on_write = &NoMapping;
    auto* const versioned = ExportVersioned(view);
    auto* const legacy = *ExportLegacy(view);
    view.owner.reset();
    for (const auto& found : {ExportedFrom(*versioned), ExportedFrom(*legacy)}) {
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->data, view.data);
      EXPECT_EQ(found->shape, view.shape);
      EXPECT_EQ(found->strides, view.strides);
      EXPECT_EQ(found->type, view.type);
      EXPECT_TRUE(found->read_only && found->constant);
      EXPECT_EQ(found->copy_on_write, &NoMapping);
    }
    {
      const auto kept = ExportedFrom(*versioned);
      versioned->deleter(versioned);
      legacy->deleter(legacy);
      EXPECT_EQ(drops, 0) << "the view keeps the memory";
    }
    EXPECT_EQ(drops.exchange(0), 1);
  }
}

TEST(ExportedFrom, KnowsNoOtherProducersTensors) {
  Foreign foreign;
  EXPECT_FALSE(ExportedFrom(*foreign.Made()).has_value());
}

TEST(Describe, RefusesAStrideCountThatIsNotTheRank) {
  EXPECT_FALSE(Describe(g_floats, {2, 32, 1}, {2, 3}, {1}, {}, false, nullptr).ok());
}

}  // namespace
}  // namespace arraybridge
