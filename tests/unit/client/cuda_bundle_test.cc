// SPDX-License-Identifier: Apache-2.0
// Bundles whose manifest and slab lie on a GPU, with memory of this process in the place of a broker's.
#include <arraybridge/bundle.h>

#include <cstring>

#include "client/bundles/manifest.h"
#include "tests/unit/client/cuda_memory.h"

namespace arraybridge {
namespace {

constexpr DataType kByte{1, 8, 1};
constexpr DataType kFloat{2, 32, 1};
constexpr uint64_t kSlabAt = 4096;  // bytes from the start of the memory
const Device kGpu{kDeviceCuda, 0, {}};

class CudaBundleTest : public cuda::FreshDriverTest {};

BundlePlan PlanOf(std::string_view metadata = "more") {
  const std::vector<BundleArray> arrays = {{"b", kFloat, {2, 3}, ArrayKind::kParameter},
                                           {"a", kByte, {5}, ArrayKind::kBuffer},
                                           {"c", kFloat, {2, 3}, ArrayKind::kOther, "b"}};
  auto plan = BundlePlan::For(arrays, "model 1", metadata);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return *std::move(plan);
}

// The two arrays of a bundle of PlanOf, in memory of the GPU.
std::vector<View> RoomsFor(const BundlePlan& plan, const OnGpu& gpu) {
  const std::vector<ArraySpec> specs = plan.specs();
  return {Bytes(gpu.data(), kGpu, *specs[0].compact_bytes()),
          Bytes(static_cast<std::byte*>(gpu.data()) + kSlabAt, kGpu, *specs[1].compact_bytes())};
}

Result<Bundle> WrittenTo(const BundlePlan& plan, const std::vector<View>& rooms) {
  return plan.WriteTo(Placement(std::shared_ptr<Placement::Range>(), rooms));
}

TEST_F(CudaBundleTest, TheManifestIsReadOnceAndTheArraysLieOnTheGpu) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 2 * kSlabAt);
    const BundlePlan plan = PlanOf();
    const std::vector<View> rooms = RoomsFor(plan, gpu);
    ASSERT_TRUE(WrittenTo(plan, rooms).ok());
    const long before = Counter("cuMemcpyDtoHAsync");
    const auto bundle = Bundle::Of(rooms);
    ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
    EXPECT_EQ(Counter("cuMemcpyDtoHAsync") - before, 1);
    std::vector<uint8_t> noise(rooms[0].nbytes(), 0xff);
    ASSERT_TRUE(CopyOverDevice(Bytes(noise.data(), Device{}, noise.size()), rooms[0].data, kGpu).ok());
    EXPECT_EQ(bundle->fingerprint() + bundle->metadata(), "model 1more");
    EXPECT_EQ(*bundle->Find("b"), 1U);
    const auto array = bundle->At(1);
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    EXPECT_EQ(array->view.device.type, kDeviceCuda);
    EXPECT_EQ(array->view.data, static_cast<std::byte*>(rooms[1].data) + 256);
    EXPECT_EQ(bundle->At(2)->view.data, array->view.data);
    EXPECT_EQ(bundle->views()[0].device.type, kDeviceCuda);
    EXPECT_EQ(Counter("cuMemcpyDtoHAsync") - before, 1);
  });
}

TEST_F(CudaBundleTest, AManifestThatIsTooLargeIsNotCopied) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 2 * kSlabAt);
    std::vector<View> rooms = RoomsFor(PlanOf(), gpu);
    for (const uint64_t bytes : {Bundle::kGpuManifestBytesMax + 1, uint64_t{1} << 61}) {
      rooms[0] = Bytes(gpu.data(), kGpu, bytes);  // a claim: the memory has fewer
      EXPECT_EQ(Bundle::Of(rooms).status().reason(), "MALFORMED_BUNDLE");
    }
    EXPECT_EQ(Counter("cuMemcpyDtoHAsync"), 0);
    const BundlePlan plan = PlanOf(std::string(Bundle::kGpuManifestBytesMax, 'm'));
    EXPECT_EQ(WrittenTo(plan, RoomsFor(plan, gpu)).status().reason(), "INVALID_BUNDLE");
    EXPECT_EQ(Counter("cuMemcpyHtoDAsync"), 0);
  });
}

TEST_F(CudaBundleTest, AHostileManifestIsRefused) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("", 2 * kSlabAt);
    const BundlePlan plan = PlanOf();
    const std::vector<View> rooms = RoomsFor(plan, gpu);
    ASSERT_TRUE(WrittenTo(plan, rooms).ok());
    const uint64_t entries = uint64_t{1} << 60;
    const View source = Bytes(const_cast<uint64_t*>(&entries), Device{}, sizeof entries);
    auto* const at = static_cast<std::byte*>(rooms[0].data) + offsetof(manifest::Header, entries);
    ASSERT_TRUE(CopyOverDevice(source, at, kGpu).ok());
    EXPECT_EQ(Bundle::Of(rooms).status().reason(), "MALFORMED_BUNDLE");
    EXPECT_EQ(Bundle::Of({Bytes(gpu.data(), kGpu, 63), rooms[1]}).status().reason(), "NOT_A_BUNDLE");
    View elsewhere = rooms[1];
    elsewhere.device.id = 1;
    EXPECT_EQ(Bundle::Of({rooms[0], elsewhere}).status().reason(), "NOT_A_BUNDLE");
  });
}

TEST_F(CudaBundleTest, AnErrorOfTheDriverIsTold) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    const OnGpu gpu("fail=cuMemcpyDtoHAsync:*:1", 2 * kSlabAt);
    const BundlePlan plan = PlanOf();
    const Status told = WrittenTo(plan, RoomsFor(plan, gpu)).status();
    EXPECT_NE(told.message().find("cuMemcpyDtoHAsync"), std::string::npos) << told.ToString();
  });
}

}  // namespace
}  // namespace arraybridge
