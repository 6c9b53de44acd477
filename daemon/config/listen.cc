// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/listen.h"

#include <algorithm>
#include <utility>

#include "daemon/config/files/tls_files.h"
#include "daemon/config/quantity.h"
#include "proto/boundary/endpoint.h"

namespace arraybridge {
namespace {

constexpr std::string_view kUnix = "unix://";
constexpr std::string_view kTcp = "tcp://";

// The path of a Unix socket's URI; empty if it is another URI.
std::string_view PathOf(std::string_view uri) {
  return uri.starts_with(kUnix) && uri.substr(kUnix.size()).starts_with('/') ? uri.substr(kUnix.size()) : "";
}

Status ReadTcp(std::string_view entry, Config& config) {
  const auto endpoint = ReadEndpoint(entry.substr(kTcp.size()));
  if (!endpoint.ok()) return endpoint.status();
  const auto numbers = NumericAddress(*endpoint);
  if (!numbers.ok()) return numbers.status();
  const bool again = std::ranges::find(config.tcp_listen, endpoint->text()) != config.tcp_listen.end();
  if (again && endpoint->port != 0) return InvalidArgument("'", entry, "' is listed twice");
  if (config.embedded) return InvalidArgument("an embedded broker does not listen on TCP");
  return config.tcp_listen.push_back(endpoint->text()), Ok();
}

Status ReadEntry(std::string_view entry, Config& config) {
  if (entry.starts_with(kTcp)) return ReadTcp(entry, config);
  const std::string_view path = PathOf(entry);
  if (path.empty()) return InvalidArgument("'", entry, "' is neither unix:///path nor tcp://HOST:PORT nor off");
  if (!config.grpc_path.empty()) return InvalidArgument("'", entry, "' is a second Unix socket; only one is allowed");
  return config.grpc_path = std::string(path), Ok();
}

}  // namespace

Status ReadListen(std::string_view text, Config& config) {
  if (text.empty()) return config.grpc_path = config.directory + "/broker.sock", Ok();
  if (text == "off") return Ok();
  for (const std::string_view entry : SplitList(text)) AB_RETURN_IF_ERROR(ReadEntry(entry, config));
  return Ok();
}

std::string WrittenListen(const Config& config) {
  std::string all = config.grpc_path.empty() ? "" : std::string(kUnix) + config.grpc_path;
  for (const std::string& endpoint : config.tcp_listen) {
    all += (all.empty() ? "" : ",") + std::string(kTcp) + endpoint;
  }
  return all.empty() ? "off" : all;
}

Result<std::optional<std::string>> ReadAdmin(std::string_view text) {
  if (text.empty()) return std::optional<std::string>();
  const std::string_view path = text.starts_with('/') ? text : PathOf(text);
  if (path.empty() && text != "off")
    return InvalidArgument("'", text, "' is neither an absolute path nor unix:///path nor off");
  return std::optional<std::string>(path);
}

Result<std::string> ReadHttp(std::string_view text) {
  if (text.empty() || text == "off") return std::string();
  const auto endpoint = ReadEndpoint(text);
  if (!endpoint.ok()) return endpoint.status();
  const auto numbers = NumericAddress(*endpoint);
  if (!numbers.ok()) return numbers.status();
  return std::string(text);
}

Status CheckHttpIsLocal(const std::string& listen) {
  if (listen.empty() || IsLoopback(*NumericAddress(*ReadEndpoint(listen)))) return Ok();
  return InvalidArgument("'", listen,
                         "' is not a loopback address: every host that reaches it could read metrics and the status "
                         "page; set http.public = true (--http-public) to allow that");
}

Status CheckTls(const Config& config, bool checking) {
  if (config.tcp_listen.empty()) return Ok();
  const std::pair<const char*, const std::string*> files[] = {
      {"cert", &config.tls.cert}, {"key", &config.tls.key}, {"client_ca", &config.tls.client_ca}};
  for (const auto& [name, path] : files) {
    if (!path->empty()) continue;
    return InvalidArgument(kTcp, config.tcp_listen.front(), " needs server.tls.", name,
                           " (a file): the TCP door accepts only TLS with client certificates")
        .With("setting", "server.listen");
  }
  const auto read = ReadTls(config.tls);
  if (!read.ok()) return read.status();
  if (!checking || read->out_of_date.empty()) return Ok();
  return InvalidArgument(read->out_of_date).With("setting", read->out_of_date_setting);
}

}  // namespace arraybridge
