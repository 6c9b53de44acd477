// SPDX-License-Identifier: Apache-2.0
// google.rpc.Status and ErrorInfo are encoded by hand: five string fields and a number do not justify a copy of
// googleapis in this tree, and Debian does not package it.
#include "daemon/service/grpc/status_grpc.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/boundary/text.h"

namespace arraybridge::daemon {
namespace {

// The trailer that carries text and details must fit into the 8 KiB of metadata that clients accept by default.
constexpr size_t kTextBytesMax = 1024;

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

void AppendNumber(std::string& out, uint32_t field, uint64_t value) {
  AppendVarint(out, field << 3);  // wire type 0
  AppendVarint(out, value);
}

void AppendBytes(std::string& out, uint32_t field, std::string_view bytes) {
  AppendVarint(out, field << 3 | 2);  // wire type 2: a length, then that many bytes
  AppendVarint(out, bytes.size());
  out.append(bytes);
}

std::string ErrorInfo(const Status& status) {
  std::string info;
  AppendBytes(info, 1, status.reason());
  AppendBytes(info, 2, "arraybridge");
  for (const auto& [key, value] : status.metadata()) {
    std::string entry;
    AppendBytes(entry, 1, key);
    AppendBytes(entry, 2, value);
    if (info.size() + entry.size() > kTextBytesMax) break;
    AppendBytes(info, 3, entry);
  }
  return info;
}

std::string Details(const Status& status, std::string_view text) {
  std::string any;
  AppendBytes(any, 1, "type.googleapis.com/google.rpc.ErrorInfo");
  AppendBytes(any, 2, ErrorInfo(status));
  std::string details;
  AppendNumber(details, 1, static_cast<uint64_t>(status.code()));
  AppendBytes(details, 2, text);
  AppendBytes(details, 3, any);
  return details;
}

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string text{FirstBytes(status.message(), kTextBytesMax)};
  if (status.reason().empty()) return {code, text};
  return {code, text, Details(status, text)};
}

}  // namespace arraybridge::daemon
