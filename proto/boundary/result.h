// SPDX-License-Identifier: Apache-2.0
// A Status is success, or a failure of the environment; a Result<T> is a T or such a failure.
// Codes are gRPC's canonical numbers, so that a status means the same at both doors and in Python.
// Messages carry names and numbers, never paths, pointers or tokens. The names may be other users', so the constructor
// makes a message Printable.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/boundary/text.h"

namespace arraybridge {

enum class Code : uint32_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "RESOURCE_EXHAUSTED" and so on; "UNKNOWN" for a number that is not a code.
constexpr std::string_view CodeName(Code code) {
  constexpr std::string_view names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto index = static_cast<uint32_t>(code);
  return index < std::size(names) ? names[index] : names[2];
}

// One pointer wide; null means success, which is the common case.
class [[nodiscard]] Status {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  Status() = default;
  Status(Code code, std::string message, std::string reason = {}) {
    if (code != Code::kOk) failure_.reset(new Failure{code, Printable(std::move(message)), std::move(reason), {}});
  }
  Status(const Status& other) : failure_(other.ok() ? nullptr : new Failure(*other.failure_)) {}
  Status& operator=(const Status& other) { return *this = Status(other); }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return ok() ? Code::kOk : failure_->code; }
  const std::string& message() const { return failure().message; }
  // UPPER_SNAKE and stable: a program may branch on it. May be empty.
  const std::string& reason() const { return failure().reason; }
  // Names and values for google.rpc.ErrorInfo.
  const Metadata& metadata() const { return failure().metadata; }

  // These change nothing if the status is success.
  Status Because(std::string reason) && {
    if (!ok()) failure_->reason = std::move(reason);
    return std::move(*this);
  }
  Status With(std::string key, std::string value) && {
    if (!ok()) failure_->metadata.emplace_back(std::move(key), std::move(value));
    return std::move(*this);
  }

  std::string ToString() const { return ok() ? "OK" : std::string(CodeName(code())) + ": " + message(); }

 private:
  struct Failure {
    Code code = Code::kOk;
    std::string message;
    std::string reason;
    Metadata metadata;
  };
  // Out of line, because almost every Status is OK.
  struct Delete {
    [[gnu::noinline, gnu::cold]] void operator()(const Failure* failure) const { delete failure; }
  };
  const Failure& failure() const {
    static const auto* const nothing = new Failure;  // never destroyed, because it may be read during exit
    return ok() ? *nothing : *failure_;
  }

  std::unique_ptr<Failure, Delete> failure_;
};

inline Status Ok() { return {}; }

// Appends what `out << part` writes. To construct and destroy a stream takes some 2,000 instructions, and a Status is
// also made where nothing is wrong: for a name that is not there yet, for an array that was not born in broker memory.
template <class Part>
void AppendPart(std::string* text, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    text->append(std::string_view(part));
  } else if constexpr (std::is_same_v<Part, char>) {
    text->push_back(part);
  } else if constexpr (std::is_integral_v<Part> && sizeof(Part) > 1) {
    std::array<char, 24> digits;
    text->append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), part).ptr);
  } else {
    std::ostringstream out;
    out << part;
    text->append(out.view());
  }
}

template <class... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  (AppendPart(&text, parts), ...);
  return text;
}

template <class... Parts>
Status MakeStatus(Code code, const Parts&... parts) {
  return Status{code, Concat(parts...)};
}
template <class... Parts>
Status InvalidArgument(const Parts&... parts) {
  return MakeStatus(Code::kInvalidArgument, parts...);
}
template <class... Parts>
Status DeadlineExceeded(const Parts&... parts) {
  return MakeStatus(Code::kDeadlineExceeded, parts...);
}
template <class... Parts>
Status NotFound(const Parts&... parts) {
  return MakeStatus(Code::kNotFound, parts...);
}
template <class... Parts>
Status AlreadyExists(const Parts&... parts) {
  return MakeStatus(Code::kAlreadyExists, parts...);
}
template <class... Parts>
Status PermissionDenied(const Parts&... parts) {
  return MakeStatus(Code::kPermissionDenied, parts...);
}
template <class... Parts>
Status ResourceExhausted(const Parts&... parts) {
  return MakeStatus(Code::kResourceExhausted, parts...);
}
template <class... Parts>
Status FailedPrecondition(const Parts&... parts) {
  return MakeStatus(Code::kFailedPrecondition, parts...);
}
template <class... Parts>
Status Unavailable(const Parts&... parts) {
  return MakeStatus(Code::kUnavailable, parts...);
}
template <class... Parts>
Status Internal(const Parts&... parts) {
  return MakeStatus(Code::kInternal, parts...);
}
template <class... Parts>
Status Unimplemented(const Parts&... parts) {
  return MakeStatus(Code::kUnimplemented, parts...);
}

// A failed check is a defect in this program: prints the check and stops the process.
[[noreturn]] inline void CheckFailed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
  std::abort();
}
#define AB_CHECK(condition) ((condition) ? void() : ::arraybridge::CheckFailed(#condition, __FILE__, __LINE__))

template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): `return value;` and `return status;` must both work.
  Result(T value) : value_(std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor). REQUIRES: !status.ok().
  Result(Status status) : status_(std::move(status)) { AB_CHECK(!status_.ok()); }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& operator*() & {
    AB_CHECK(ok());
    return *value_;
  }
  const T& operator*() const& {
    AB_CHECK(ok());
    return *value_;
  }
  T&& operator*() && {
    AB_CHECK(ok());
    return *std::move(value_);
  }
  T* operator->() {
    AB_CHECK(ok());
    return &*value_;
  }
  const T* operator->() const {
    AB_CHECK(ok());
    return &*value_;
  }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns early on an error: `AB_RETURN_IF_ERROR(Check(request));`
#define AB_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                     \
    if (::arraybridge::Status ab_status = (expression); !ab_status.ok()) return ab_status; \
  } while (false)

// Defines a variable with the value of a Result, or returns its error: `AB_ASSIGN_OR_RETURN(auto file, Open(path));`
#define AB_ASSIGN_OR_RETURN(variable, ...) AB_ASSIGN_IN(AB_JOINED(ab_result_, __LINE__), variable, __VA_ARGS__)
#define AB_ASSIGN_IN(result, variable, ...) \
  auto result = (__VA_ARGS__);              \
  if (!result.ok()) return result.status(); \
  variable = *std::move(result)
#define AB_JOINED(left, right) AB_JOIN_IN(left, right)
#define AB_JOIN_IN(left, right) left##right

}  // namespace arraybridge
