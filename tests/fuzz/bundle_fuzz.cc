// SPDX-License-Identifier: Apache-2.0
// Manifests of a hostile maker: any bytes are refused, or are a bundle whose names are found, whose parts fit into the
// manifest side by side, and whose arrays lie in the slab and share bytes only if they are tied.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <arraybridge/bundle.h>

namespace arraybridge {
namespace {

constexpr size_t kSlabBytes = 4096;

alignas(256) std::array<char, kSlabBytes> slab;

View BytesAt(void* data, size_t count) {
  const auto view = Describe(data, {1, 8, 1}, {static_cast<int64_t>(count)}, {}, {}, true, nullptr);
  AB_CHECK(view.ok());
  return *view;
}

void Question(const Bundle& bundle, uint64_t manifest_bytes) {
  uint64_t used = bundle.fingerprint().size() + bundle.metadata().size();
  std::vector<uint64_t> owner_of(kSlabBytes, bundle.size());  // of each byte of the slab
  std::string before;
  for (uint64_t i = 0; i < bundle.size(); ++i) {
    const auto name = bundle.NameAt(i);
    AB_CHECK(name.ok() && (i == 0 || *name > before));
    const auto found = bundle.Find(*name);
    AB_CHECK(found.ok() && *found == i);
    before = *name;
    used += name->size();
    const auto array = bundle.At(i);
    if (!array.ok()) continue;
    used += sizeof(int64_t) * array->view.shape.size();
    if (array->view.elements() == 0) continue;
    const auto begin = static_cast<size_t>(static_cast<char*>(array->view.data) - slab.data());
    AB_CHECK(begin <= kSlabBytes && array->view.nbytes() <= kSlabBytes - begin);
    for (size_t at = begin; at < begin + array->view.nbytes(); ++at) {
      AB_CHECK(owner_of[at] == bundle.size() || owner_of[at] == array->tie);
      owner_of[at] = array->tie;
    }
  }
  AB_CHECK(used <= manifest_bytes);
}

}  // namespace
}  // namespace arraybridge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arraybridge;
  const std::vector<View> views{BytesAt(const_cast<uint8_t*>(data), size), BytesAt(slab.data(), slab.size())};
  const auto bundle = Bundle::Of(views);
  if (bundle.ok()) Question(*bundle, size);
  const Status published = Bundle::CheckContent(Bundle::kStructure, views);
  AB_CHECK(published.ok() || !bundle.ok());
  return 0;
}
