// SPDX-License-Identifier: Apache-2.0
// The cost of DLPack's exchange table for a consumer in C: loops over its functions, called by
// tests/bench/bench_convert.py with the interpreter's lock held. The table's layout is that of DLPack 1.3, copied here,
// so that this file needs no header.
#include <cstdint>

namespace {

using FromObject = int (*)(void* object, void** out);
using Borrow = int (*)(void* object, void* out);
using Deleter = void (*)(void* tensor);

struct Table {
  uint64_t version;
  void* previous;
  void* allocate;
  FromObject from_object;
  void* to_object;
  Borrow borrow;
  void* current_work_stream;
};

struct Head {
  uint64_t version;
  void* context;
  Deleter deleter;
};

}  // namespace

// Returns the number of failed calls.
extern "C" int Own(const void* table, void* object, int count) {
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    void* tensor = nullptr;
    if (static_cast<const Table*>(table)->from_object(object, &tensor) != 0) {
      ++failed;
      continue;
    }
    static_cast<Head*>(tensor)->deleter(tensor);
  }
  return failed;
}

extern "C" int BorrowOnly(const void* table, void* object, int count) {
  alignas(8) unsigned char tensor[48];
  int failed = 0;
  for (int i = 0; i < count; ++i) failed += static_cast<const Table*>(table)->borrow(object, tensor) != 0 ? 1 : 0;
  return failed;
}
