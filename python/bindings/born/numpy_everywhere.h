// SPDX-License-Identifier: Apache-2.0
// NumpyEverywhere exchanges the functions of NumPy's own handler, which the arrays of all threads and contexts have,
// and lets scopes use them. The exchange lasts until the process ends, because arrays that were allocated by these
// functions have no handler of their own. The arrays that exist stay valid, because the memory of each is freed where
// it came from.
#pragma once

#include <memory>

#include "python/bindings/born/numpy_scope.h"

namespace arraybridge::python {

class NumpyEverywhere {
 public:
  // From now on new arrays of all threads are allocated by this scope. The scope that entered last wins. REQUIRES: the
  // GIL.
  static void Enter(const std::shared_ptr<NumpyScope>& scope);
  // REQUIRES: the GIL; the scope has entered.
  static void Leave(const NumpyScope& scope);
  // NumPy's own functions, before and after the exchange. REQUIRES: the GIL.
  static NumpyAllocator Own();
};

}  // namespace arraybridge::python
