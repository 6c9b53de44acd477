// SPDX-License-Identifier: Apache-2.0
// The boundary between C and C++: what all functions of the C API do with their arguments, errors and results.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <arraybridge/arraybridge.h>
#include <arraybridge/broker.h>

#include "client/c_api/handles.h"

namespace arraybridge::c {

// Of the latest call of this thread.
std::string& Message();
std::string& Reason();
// The latest timeout error of a call on this thread.
Status& TimedOut();

ab_code SetLastStatus(const Status& status);

// Returns the result of `work` as a code, and catches all exceptions.
template <class Work>
ab_code Guarded(Work work) noexcept {
  try {
    return SetLastStatus(work());
  } catch (const std::bad_alloc&) {
    Message() = "out of memory";  // short enough for a string that allocates nothing
    Reason().clear();
    return AB_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    return SetLastStatus(Status(Code::kInternal, error.what()));
  }
}

Status CheckGiven(const void* given, const char* what);

// Guarded work with a handle, or with a place for an answer.
template <class Work>
ab_code With(const void* given, const char* what, Work work) noexcept {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(given, what));
    return work();
  });
}

// The sizes of the structs in the first version of the header.
constexpr size_t kViewBytesMin = sizeof(ab_view);
constexpr size_t kContentBytesMin = sizeof(ab_content);

Status CheckSize(size_t size, size_t least, const char* what);

// Copies a caller's struct into one of this version. An older header's struct is shorter; its missing fields are zero.
// A newer header's struct is longer; its unknown fields must be zero, because they must not be ignored silently.
template <class Struct>
Result<Struct> Known(const Struct* given, size_t least, const char* what) {
  AB_RETURN_IF_ERROR(CheckGiven(given, what));
  const size_t size = given->size;
  AB_RETURN_IF_ERROR(CheckSize(size, least, what));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] != 0) return InvalidArgument(what, " uses a field that this library is too old for: byte ", i);
  }
  Struct known{};
  std::memcpy(&known, given, std::min(size, sizeof known));
  return known;
}

Status CheckShape(const ab_view& view);
std::vector<int64_t> Numbers(const int64_t* numbers, int32_t count);
Result<View> ViewOf(const ab_view* given);
// INVALID_ARGUMENT, TOO_LARGE: there are more than `most`.
Result<std::string> BytesOf(const void* bytes, size_t count, size_t most, const char* what);

// Calls `take` with each struct of a caller's array, in which an older program's are shorter than this library's.
// REQUIRES: `take` fails where the struct's size is invalid.
template <class Struct, class Take>
Status ForEach(const Struct* first, size_t count, const char* what, Take take) {
  if (count > 0) AB_RETURN_IF_ERROR(CheckGiven(first, what));
  const auto* next = reinterpret_cast<const std::byte*>(first);
  for (size_t i = 0; i < count; ++i) {
    const auto* const given = reinterpret_cast<const Struct*>(next);
    const Status taken = take(given);
    if (!taken.ok()) return InvalidArgument(what, "[", i, "]: ", taken.message());
    next += given->size;
  }
  return Ok();
}

// REQUIRES: if the content's array is memory that is not published, the caller sends it before it drops it.
Result<std::vector<View>> ViewsOf(const ab_content& content);

// The bytes beside the arrays of a content.
struct Described {
  std::string structure;
  std::string metadata;
};

Result<Described> DescriptionOf(const ab_content& content);

// The caller owns it.
ab_array* ArrayOf(Acquired acquired);
// Less than 0: no limit.
std::optional<std::chrono::milliseconds> TimeoutOf(int64_t timeout_ms);

}  // namespace arraybridge::c
