// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/http/status_json.h"

#include <google/protobuf/util/json_util.h>

#include <charconv>
#include <string>
#include <utility>

#include "arraybridge/v1/broker.pb.h"

namespace arraybridge::daemon {
namespace {

constexpr char kJson[] = "application/json";

Http::Page PageOf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) return {500, kJson, R"({"error": "the answer cannot be written as JSON"})"};
  return {200, kJson, std::move(json)};
}

Http::Page Error(int code, const std::string& message) {
  v1::Error error;
  error.set_message(message);
  Http::Page page = PageOf(error);
  page.code = code;
  return page;
}

std::string TextIn(const Http::Query& query, const std::string& name) {
  const auto found = query.find(name);
  return found == query.end() ? std::string() : found->second;
}

// 0 for a parameter that is absent. nullopt: it is no number.
std::optional<uint64_t> NumberIn(const Http::Query& query, const std::string& name) {
  const std::string text = TextIn(query, name);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size())) return std::nullopt;
  return number;
}

Result<v1::ListRequest> RequestOf(const Http::Query& query) {
  v1::ListRequest request;
  v1::ListRequest::Kind kind{};
  if (!v1::ListRequest::Kind_Parse(TextIn(query, "kind"), &kind)) {
    return InvalidArgument("kind is one of SHARES, SESSIONS, LEASES, NAMESPACES, DEVICES, CHANNELS");
  }
  const auto session = NumberIn(query, "session");
  const auto page_size = NumberIn(query, "page_size");
  if (!session || !page_size || *page_size > UINT32_MAX) {
    return InvalidArgument("session and page_size are numbers");
  }
  request.set_kind(kind);
  request.set_namespace_(TextIn(query, "namespace"));
  request.set_name_prefix(TextIn(query, "name_prefix"));
  request.set_session(*session);
  request.set_page_size(static_cast<uint32_t>(*page_size));
  request.set_page_token(TextIn(query, "page_token"));
  request.set_ends(TextIn(query, "ends") == "true");
  return request;
}

Http::Page List(const Http::Query& query, const Config& config, const ListVerbs& lists) {
  const auto request = RequestOf(query);
  if (!request.ok()) return Error(400, request.status().message());
  if (!config.http_namespaces && request->kind() != v1::ListRequest::DEVICES) {
    return Error(403,
                 "names, processes and channels are hidden from this page; http.namespaces = true (--http-namespaces) "
                 "shows them to everybody who can open it");
  }
  auto listed = lists.ListEverybodys(*request);
  if (!listed.ok()) return Error(400, listed.status().message());
  for (v1::ShareInfo& row : *listed->mutable_shares()) {
    row.mutable_share()->clear_metadata();
    row.mutable_share()->clear_structure();
  }
  return PageOf(*listed);
}

}  // namespace

std::optional<Http::Page> StatusJson(std::string_view path, const Http::Query& query, const Config& config,
                                     const ListVerbs& lists) {
  if (path == "/info.json") return PageOf(lists.GetServerInfo());
  if (path == "/stats.json") return PageOf(lists.Stats());
  if (path == "/list.json") return List(query, config, lists);
  return std::nullopt;
}

}  // namespace arraybridge::daemon
