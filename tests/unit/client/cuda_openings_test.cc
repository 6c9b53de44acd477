// SPDX-License-Identifier: Apache-2.0
// A driver may open and close an object of another process slowly while a GPU is busy. Only users of the same object
// wait for that.
#include "client/memory/cuda/cuda_openings.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>

#include "tests/unit/client/cuda_owner.h"

namespace arraybridge {
namespace {

constexpr std::chrono::seconds kPatience{20};
constexpr std::chrono::milliseconds kAWhile{50};

struct Object {
  explicit Object(std::function<void()> when_closed = [] {}) : close(std::move(when_closed)) {}
  ~Object() { close(); }
  const std::function<void()> close;
};
using Openings = CudaOpenings<Object>;

Result<std::unique_ptr<Object>> Plain() { return std::make_unique<Object>(); }

// Uses the driver, since objects are closed only in a process that has used it.
Openings& InUse() {
  EXPECT_TRUE(CudaDevices::OfThisProcess(kLibrary).ok());
  static auto* const openings = new Openings;
  return *openings;
}

// Whether another thread opens and closes the object of `key` while this one is inside the driver.
bool OthersGoOn(Openings& openings, const std::string& key) {
  auto other = std::async(std::launch::async, [&] { return openings.Get(key, Plain).ok(); });
  return other.wait_for(kPatience) == std::future_status::ready && other.get();
}

TEST(CudaOpeningsTest, OpeningAndClosingHoldUpNoOtherKey) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    Openings& openings = InUse();
    bool while_opening = false;
    bool while_closing = false;
    auto slow = openings.Get("a", [&]() -> Result<std::unique_ptr<Object>> {
      while_opening = OthersGoOn(openings, "b");
      return std::make_unique<Object>([&] { while_closing = OthersGoOn(openings, "b"); });
    });
    ASSERT_TRUE(slow.ok());
    *slow = nullptr;
    EXPECT_TRUE(while_opening);
    EXPECT_TRUE(while_closing);
  });
}

TEST(CudaOpeningsTest, AnObjectThatIsBeingClosedIsNotOpened) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    Openings& openings = InUse();
    std::atomic<bool> closed{false};
    std::future<bool> opened_after;
    auto first = openings.Get("a", [&]() -> Result<std::unique_ptr<Object>> {
      return std::make_unique<Object>([&] {
        opened_after = std::async(std::launch::async, [&] {
          bool after = false;
          const auto again = openings.Get("a", [&] {
            after = closed.load();
            return Plain();
          });
          return again.ok() && after;
        });
        EXPECT_EQ(opened_after.wait_for(kAWhile), std::future_status::timeout);
        closed = true;
      });
    });
    ASSERT_TRUE(first.ok());
    *first = nullptr;
    EXPECT_TRUE(opened_after.get());
  });
}

TEST(CudaOpeningsTest, AfterAFailureTheNextUserOpens) {
  EXPECT_FINE_IN_FRESH_PROCESS({
    Openings& openings = InUse();
    const auto fails = []() -> Result<std::unique_ptr<Object>> { return Unavailable("the driver refuses"); };
    EXPECT_EQ(openings.Get("a", fails).status().message(), "the driver refuses");
    const auto opened = openings.Get("a", Plain);
    ASSERT_TRUE(opened.ok());
    EXPECT_EQ(*openings.Get("a", fails), *opened);  // the object that is open
  });
}

}  // namespace
}  // namespace arraybridge
