// SPDX-License-Identifier: Apache-2.0
// BornImports make libraries of this process allocate aligned memory, of which frameworks make their arrays, in a
// BornHeap. The libraries' own slots of posix_memalign, aligned_alloc, realloc and free are exchanged; the other
// libraries of the process, and its children after exec, are not concerned. Thread-safe.
//
// The exchange is the process's: it holds for all threads. After the last Leave the allocating functions are the
// library's own again. The freeing ones stay exchanged until the process ends, because blocks live on; they pass on
// what is of no heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <arraybridge/born/heap.h>

namespace arraybridge {

class BornImports {
 public:
  // `framework`: for the counts, a place in born::kFrameworks. `libraries`: how the names of their files begin, as
  // "libc10.so". Smaller blocks than `min_bytes` are the library's own, and those that must be aligned to more than a
  // page.
  BornImports(std::shared_ptr<BornHeap> heap, size_t framework, std::vector<std::string> libraries, uint64_t min_bytes);
  ~BornImports();
  BornImports(const BornImports&) = delete;
  BornImports& operator=(const BornImports&) = delete;

  // NOT_FOUND: none of the libraries is loaded. UNIMPLEMENTED: they call the allocator in a way that cannot be
  // exchanged. RESOURCE_EXHAUSTED: of too many libraries. Then nothing was exchanged. Of several Enter, for the same
  // library, the latest has the blocks. The heap must be open. REQUIRES: it was not entered before.
  Status Enter();
  void Leave();
  // Of its blocks since Enter.
  BornTally::Counts counts() const;

  class Scope;  // client/born/imports/scope.h

 private:
  const std::vector<std::string> libraries_;
  const std::shared_ptr<Scope> scope_;
};

}  // namespace arraybridge
