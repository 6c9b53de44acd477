// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/born/imports.h>

#include <utility>

#include "client/born/imports/allocating_library.h"

namespace arraybridge {

BornImports::BornImports(std::shared_ptr<BornHeap> heap, size_t framework, std::vector<std::string> libraries,
                         uint64_t min_bytes)
    : libraries_(std::move(libraries)), scope_(std::make_shared<Scope>(std::move(heap), framework, min_bytes)) {}

BornImports::~BornImports() = default;

Status BornImports::Enter() {
  Status lack = NotFound("no library was named");
  std::vector<AllocatingLibrary*> found;
  for (const std::string& name : libraries_) {
    const auto library = AllocatingLibrary::Of(name);
    if (library.ok()) {
      found.push_back(*library);
    } else if (lack.code() == Code::kNotFound) {
      lack = library.status();
    }
  }
  for (AllocatingLibrary* const library : found) library->Enter(scope_);
  return found.empty() ? lack : Ok();
}

void BornImports::Leave() {
  for (const std::string& name : libraries_) {
    const auto library = AllocatingLibrary::Of(name);
    if (library.ok()) (*library)->Leave(*scope_);
  }
}

BornTally::Counts BornImports::counts() const { return scope_->counts(); }

}  // namespace arraybridge
