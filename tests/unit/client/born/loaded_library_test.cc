// SPDX-License-Identifier: Apache-2.0
// The slots of imports in libraries whose calls are linked when they are loaded, and when each is first called.
#include "client/born/imports/loaded_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/born/imports/allocating_library.h"
#include "tests/integration/build_tree.h"

namespace arraybridge {
namespace {

int g_frees = 0;

void CountedFree(void* data) {
  ++g_frees;
  std::free(data);
}

struct Plugin {
  explicit Plugin(const std::string& path) : library(::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) {}
  template <class Function>
  Function* Of(const char* name) const {
    return std::bit_cast<Function*>(::dlsym(library, name));
  }
  void* Make(size_t alignment, size_t bytes) const { return Of<void*(size_t, size_t)>("PluginMake")(alignment, bytes); }
  void Drop(void* data) const { Of<void(void*)>("PluginDrop")(data); }

  void* const library;
};

class LoadedLibraryTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string file_name() const {
    const std::string path = Built(GetParam());
    return path.substr(path.rfind('/') + 1);
  }
  const Plugin plugin_{Built(GetParam())};
};

TEST_P(LoadedLibraryTest, ExchangesEverySlotOfAFunctionAndPutsItBack) {
  ASSERT_NE(plugin_.library, nullptr) << ::dlerror();
  const auto library = LoadedLibrary::Find(file_name());
  ASSERT_TRUE(library);
  EXPECT_TRUE(library->Contains(::dlsym(plugin_.library, "PluginMake")));
  EXPECT_FALSE(library->Contains(std::bit_cast<void*>(&std::free)));
  EXPECT_TRUE(library->SlotsOf("no_such_function").empty());
  const auto slots = library->SlotsOf("free");
  ASSERT_GE(slots.size(), 2U) << "a call, and the table";
  std::vector<void*> before;
  for (const ImportSlot& slot : slots) {
    before.push_back(slot.function());
    ASSERT_TRUE(slot.Store(std::bit_cast<void*>(&CountedFree)));
  }
  g_frees = 0;
  plugin_.Drop(plugin_.Make(64, 1000));
  EXPECT_EQ(g_frees, 1);
  plugin_.Of<void(void*)>("PluginDropByTable")(plugin_.Make(64, 1000));
  EXPECT_EQ(g_frees, 2);
  for (size_t i = 0; i < slots.size(); ++i) ASSERT_TRUE(slots[i].Store(before[i]));
  plugin_.Drop(plugin_.Make(64, 1000));
  EXPECT_EQ(g_frees, 2);
}

TEST_P(LoadedLibraryTest, WithoutAHeapItAllocatesAsBefore) {
  const auto library = AllocatingLibrary::Of(file_name());
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_EQ(*AllocatingLibrary::Of(file_name()), *library);
  auto* const data = static_cast<char*>(plugin_.Make(4096, 1 << 20));
  ASSERT_NE(data, nullptr);
  data[0] = 'x';
  auto* const grown = static_cast<char*>(plugin_.Of<void*(void*, size_t)>("PluginGrow")(data, 1 << 21));
  ASSERT_NE(grown, nullptr);
  EXPECT_EQ(grown[0], 'x');
  plugin_.Drop(grown);
  void* const aligned = plugin_.Of<void*(size_t, size_t)>("PluginMakeAligned")(256, 512);
  EXPECT_EQ(std::bit_cast<uintptr_t>(aligned) % 256, 0U);
  plugin_.Of<void(void*)>("PluginDropByTable")(aligned);
  plugin_.Drop(nullptr);
  EXPECT_EQ(plugin_.Make(3, 100), nullptr) << "an alignment that is none";
}

// The last test, because the process has no room for another library then. Each beginning of the name is another one.
TEST_P(LoadedLibraryTest, WithoutRoomForAnotherLibraryItIsRefused) {
  std::string name = file_name();
  Status status;
  for (int turn = 0; turn < 9; ++turn) {
    status = AllocatingLibrary::Of(name).status();
    name.pop_back();
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(), "the allocations of 8 libraries are exchanged, which is the most");
  plugin_.Drop(plugin_.Make(64, 1000));
}

INSTANTIATE_TEST_SUITE_P(Linked, LoadedLibraryTest, ::testing::Values(LAZY_PLUGIN, EAGER_PLUGIN));

TEST(NoLoadedLibraryTest, ALibraryThatIsNotLoadedIsNotFound) {
  EXPECT_FALSE(LoadedLibrary::Find("libno-such-library.so"));
  EXPECT_EQ(AllocatingLibrary::Of("libno-such-library.so").status().code(), Code::kNotFound);
  EXPECT_EQ(AllocatingLibrary::Of("libm.so").status().code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace arraybridge
