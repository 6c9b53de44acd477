// SPDX-License-Identifier: Apache-2.0
// A DeferredRelease collects objects that the tables drop with the broker's lock held. A verb takes them and destroys
// them after it has released the lock.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace arraybridge::daemon {

class DeferredRelease {
 public:
  using Objects = std::vector<std::shared_ptr<const void>>;

  void Add(std::shared_ptr<const void> object) { objects_.push_back(std::move(object)); }
  Objects Take() { return std::exchange(objects_, {}); }

 private:
  Objects objects_;
};

}  // namespace arraybridge::daemon
