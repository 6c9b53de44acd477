// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/listen.h"

#include "daemon/config/removed.h"
#include "proto/boundary/endpoint.h"

namespace arraybridge::daemon {
namespace {

constexpr std::string_view kUnix = "unix://";

bool IsTcp(std::string_view text) { return text.find("tcp://") != text.npos || ReadEndpoint(text).ok(); }

}  // namespace

Result<std::optional<std::string>> ReadSocket(std::string_view text) {
  if (text.empty()) return std::optional<std::string>();
  if (text == "off") return std::optional<std::string>("");
  if (IsTcp(text)) return InvalidArgument("'", text, "': TCP ", kRemovedWithTcp);
  const std::string_view path = text.starts_with(kUnix) ? text.substr(kUnix.size()) : text;
  if (path.find(kUnix) != path.npos) return InvalidArgument("'", text, "' are several addresses: give one");
  if (path.starts_with('/')) return std::optional<std::string>(path);
  return InvalidArgument("'", text, "' is neither an absolute path nor unix:///path nor off");
}

std::string WrittenSocket(const std::string& path) { return path.empty() ? "off" : std::string(kUnix) + path; }

Result<std::string> ReadHttp(std::string_view text) {
  if (text.empty() || text == "off") return std::string();
  AB_ASSIGN_OR_RETURN(const auto endpoint, ReadEndpoint(text));
  AB_RETURN_IF_ERROR(NumericAddress(endpoint).status());
  return std::string(text);
}

Status CheckHttpIsLocal(const std::string& listen) {
  if (listen.empty() || IsLoopback(*NumericAddress(*ReadEndpoint(listen)))) return Ok();
  return InvalidArgument("'", listen,
                         "' is not a loopback address: every host that reaches it could read metrics and the status "
                         "page; set http.public = true (--http-public) to allow that");
}

}  // namespace arraybridge::daemon
