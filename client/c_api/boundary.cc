// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/boundary.h"

#include <memory>
#include <utility>

#include <arraybridge/bundle.h>

#include "proto/boundary/frame.h"

namespace arraybridge::c {

namespace {

constexpr int32_t kRankMax = 64;

}  // namespace

std::string& Message() {
  thread_local std::string message;
  return message;
}

std::string& Reason() {
  thread_local std::string reason;
  return reason;
}

Status& TimedOut() {
  thread_local Status status;
  return status;
}

ab_code SetLastStatus(const Status& status) {
  if (status.code() == Code::kDeadlineExceeded) TimedOut() = status;
  Message() = status.ok() ? std::string() : status.message();
  Reason() = status.reason();
  return static_cast<ab_code>(status.code());
}

Status CheckGiven(const void* given, const char* what) {
  return given == nullptr ? InvalidArgument(what, " is NULL") : Ok();
}

Status CheckSize(size_t size, size_t least, const char* what) {
  constexpr size_t kMost = 4096;  // larger than any future struct, so not a valid size
  if (size >= least && size <= kMost) return Ok();
  return InvalidArgument(what, ".size is ", size, "; set it to the struct's sizeof, which is at least ", least);
}

Status CheckShape(const ab_view& view) {
  if (view.rank < 0 || view.rank > kRankMax) return InvalidArgument("rank ", view.rank, " is not 0 to ", kRankMax);
  if (view.rank > 0 && view.shape == nullptr) return InvalidArgument("shape is NULL at rank ", view.rank);
  return Ok();
}

std::vector<int64_t> Numbers(const int64_t* numbers, int32_t count) {
  return numbers == nullptr ? std::vector<int64_t>() : std::vector<int64_t>(numbers, numbers + count);
}

Result<View> ViewOf(const ab_view* given) {
  AB_ASSIGN_OR_RETURN(const auto known, Known(given, kViewBytesMin, "view"));
  const ab_view* const source = &known;
  AB_RETURN_IF_ERROR(CheckShape(*source));
  if (source->device_type != kDeviceCpu) {
    return InvalidArgument("device type ", source->device_type, ": the C API takes host memory only (", kDeviceCpu,
                           ")");
  }
  return Describe(source->data, {source->type_code, source->type_bits, source->type_lanes},
                  Numbers(source->shape, source->rank), Numbers(source->strides, source->rank), {}, true, nullptr);
}

Result<std::string> BytesOf(const void* bytes, size_t count, size_t most, const char* what) {
  if (count == 0) return std::string();
  AB_RETURN_IF_ERROR(CheckGiven(bytes, what));
  if (count > most) {
    return InvalidArgument(what, " has ", count, " bytes; no request has room for more than ", most)
        .Because("TOO_LARGE");
  }
  return std::string(static_cast<const char*>(bytes), count);
}

Result<std::vector<View>> ViewsOf(const ab_content& content) {
  if (content.array != nullptr) return content.array->views;
  std::vector<View> views;
  AB_RETURN_IF_ERROR(ForEach(content.views, content.count, "content.views", [&](const ab_view* given) -> Status {
    AB_ASSIGN_OR_RETURN(auto view, ViewOf(given));
    views.push_back(std::move(view));
    return Ok();
  }));
  if (views.empty()) return InvalidArgument("content has no arrays");
  return views;
}

Result<Described> DescriptionOf(const ab_content& content) {
  const bool is_bundle = content.array != nullptr && content.array->bundle && content.structure_bytes == 0;
  AB_ASSIGN_OR_RETURN(auto structure,
                      BytesOf(content.structure, content.structure_bytes, kFrameBytesMax, "content.structure"));
  AB_ASSIGN_OR_RETURN(auto metadata,
                      BytesOf(content.metadata, content.metadata_bytes, kFrameBytesMax, "content.metadata"));
  if (is_bundle) structure = Bundle::kStructure;
  return Described{std::move(structure), std::move(metadata)};
}

ab_array* ArrayOf(Acquired acquired) {
  auto made = std::make_unique<ab_array>();
  made->views = std::move(acquired.views);
  made->share = std::move(acquired.share);
  made->sent = std::move(acquired.sent);
  return made.release();
}

std::optional<std::chrono::milliseconds> TimeoutOf(int64_t timeout_ms) {
  if (timeout_ms < 0) return std::nullopt;
  return std::chrono::milliseconds(timeout_ms);
}

}  // namespace arraybridge::c
