// SPDX-License-Identifier: Apache-2.0
// A bundle is one share of many arrays, such as the weights of a model: one name, one generation, one lease, one
// mapping. Its manifest finds an array by name without decoding the others: a bundle of 20,000 arrays is opened in
// about 3 ms, in which the manifest is copied and checked. It lies in host memory or on one GPU.
//
//   auto plan = arraybridge::BundlePlan::For(arrays, fingerprint, metadata);  // in the process that writes it
//   auto placement = broker.Empty(plan->specs(), {});
//   auto bundle = plan->WriteTo(*placement);                                  // its views are writable
//   const std::string structure(arraybridge::Bundle::kStructure);
//   auto share = broker.Publish(*placement, {.name = "model", .structure = structure});
//
//   auto bundle = arraybridge::Bundle::Of(broker.Acquire({.name = "model"})->views);       // in any process
//   auto weights = bundle->At(*bundle->Find("layers.0.weight"));
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/view.h>

namespace arraybridge {

enum class ArrayKind : uint8_t { kParameter, kBuffer, kOther, kLast = kOther };

// An array that a bundle is to have.
struct BundleArray {
  std::string name;  // up to kNameBytesMax bytes of UTF-8, no NUL; may be empty
  DataType type;
  std::vector<int64_t> shape;
  ArrayKind kind = ArrayKind::kOther;
  std::string tie{};  // the name of another array of the same type and shape whose bytes it has, not of one with an
                      // empty name; empty: its own bytes
};

class Bundle {
 public:
  // Share::structure of a bundle: for clients that do not know bundles, a tree of two arrays of bytes.
  static constexpr std::string_view kStructure = R"({"d":[["arraybridge.manifest",0],["arraybridge.bytes",1]]})";
  static constexpr size_t kNameBytesMax = size_t{1} << 20;
  static constexpr uint64_t kGpuManifestBytesMax = uint64_t{64} << 20;

  // `views`: of an acquired share with kStructure, or of the placement that becomes one. Copies the manifest, on a GPU
  // after the work of its producer, and checks it as a whole. The header is valid, and names are sorted and unique. No
  // two names or shapes use the same bytes of it. No two arrays use the same bytes of the slab unless they are tied.
  // Everything else reads the copy. INVALID_ARGUMENT, NOT_A_BUNDLE, or MALFORMED_BUNDLE: also of a manifest on a GPU
  // with more than kGpuManifestBytesMax; UNIMPLEMENTED, BUNDLE_VERSION: another major version of the manifest. Errors
  // of CopyToHeap.
  static Result<Bundle> Of(std::vector<View> views);
  // INVALID_ARGUMENT, MALFORMED_BUNDLE: a share of these arrays with this Share::structure would be a bundle that Of
  // refuses. Broker::Publish, Broker::Put and Channel::Send call it. Of arrays on a GPU it checks nothing.
  static Status CheckContent(std::string_view structure, std::span<const View> views);

  uint64_t size() const { return size_; }
  uint64_t metadata_bytes() const;  // of metadata(), without a copy
  // Set by the writer: tells which model this is. Empty: not set.
  std::string fingerprint() const;
  std::string metadata() const;

  // By binary search. NOT_FOUND, ARRAY_NOT_FOUND.
  Result<uint64_t> Find(std::string_view name) const;
  // OUT_OF_RANGE.
  Result<std::string> NameAt(uint64_t index) const;
  struct Array {
    std::string name;
    ArrayKind kind;
    uint64_t tie;  // the index of the array whose bytes these are, or its own
    View view;     // compact; keeps the share
  };
  // The arrays are sorted by name. OUT_OF_RANGE; INVALID_ARGUMENT, MALFORMED_BUNDLE: the entry is broken, and the
  // others are not affected.
  Result<Array> At(uint64_t index) const;
  // Both arrays of bytes, where they lie: the manifest and the slab.
  const std::vector<View>& views() const { return views_; }
  // The same arrays in another mapping of the slab. REQUIRES: `slab` is as long as views()[1].
  Bundle Over(View slab) const;

 private:
  Bundle(std::vector<View> views, View manifest, uint64_t size, uint32_t entry_bytes)
      : views_(std::move(views)), manifest_(std::move(manifest)), size_(size), entry_bytes_(entry_bytes) {}
  Status CheckNames() const;
  Status CheckSpans() const;
  std::string Text(uint32_t offset, uint32_t bytes) const;

  std::vector<View> views_;
  View manifest_;  // this process's own copy
  uint64_t size_;
  uint32_t entry_bytes_;
};

// The memory that a bundle needs, and its manifest.
class BundlePlan {
 public:
  // INVALID_ARGUMENT: a name is invalid or not unique, a tie names no array with bytes of its own, type and shape of
  // the two differ, an array has no DLPack type or more than 64 dimensions, or the manifest exceeds 4 GiB.
  static Result<BundlePlan> For(std::span<const BundleArray> arrays, std::string_view fingerprint = {},
                                std::string_view metadata = {});

  // The two arrays of bytes that Broker::Empty is to allocate.
  std::vector<ArraySpec> specs() const;
  // Writes the manifest. The bytes of the arrays are undefined until the caller writes them, through the views of the
  // bundle that is returned. INVALID_ARGUMENT, INVALID_BUNDLE: the placement is on a GPU, and the manifest exceeds
  // Bundle::kGpuManifestBytesMax. Errors of CopyToGpus. REQUIRES: the placement was made of specs().
  Result<Bundle> WriteTo(const Placement& placement) const;

 private:
  BundlePlan(std::string manifest, uint64_t bytes) : manifest_(std::move(manifest)), bytes_(bytes) {}

  std::string manifest_;
  uint64_t bytes_;
};

}  // namespace arraybridge
