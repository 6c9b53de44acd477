// SPDX-License-Identifier: Apache-2.0
#include "daemon/http_pages.h"

#include <string>
#include <utility>

#include "daemon/service/http/live/tier_json.h"
#include "daemon/service/http/status_json.h"
#include "daemon/service/http/status_page.h"
#include "daemon/service/system/manager_store.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/endpoint.h"

namespace arraybridge::daemon {
namespace {

// The stored socket that listens on `address`; invalid if there is none. The others are removed from the store.
UniqueFd TakeFitting(std::vector<StoredDescriptor> own, const std::string& address, DescriptorStore* store) {
  UniqueFd fitting;
  for (StoredDescriptor& each : own) {
    if (!fitting.valid() && IsListeningOn(each.fd.get(), address)) {
      fitting = std::move(each.fd);
      continue;
    }
    each.fd.reset();
    if (store != nullptr) store->Remove(each.name);
  }
  return fitting;
}

// A new socket, which is stored. A removed one may have the same port, so the holder must have closed it before.
Result<UniqueFd> Listen(const std::string& address, DescriptorStore* store) {
  if (store != nullptr) static_cast<void>(store->Store({}));
  auto socket = Http::Listen(address);
  if (!socket.ok() || store == nullptr) return socket;
  StoreOrWarn(store, PassedSockets::OwnName(PassedSockets::kHttp, {}), socket->get(), "the http socket");
  return socket;
}

}  // namespace

Result<std::unique_ptr<Http>> OpenHttp(HttpSockets sockets, DescriptorStore* store, const Config& config,
                                       const Broker& broker, const Verbs& verbs, const Metrics& metrics) {
  // With the manager's socket, or without an address, an own socket is no longer wanted.
  const bool has_managers = sockets.of_manager.valid();
  UniqueFd own = TakeFitting(std::move(sockets.own), has_managers ? std::string() : config.http_listen, store);
  if (!has_managers && config.http_listen.empty()) return std::unique_ptr<Http>();
  AB_ASSIGN_OR_RETURN(auto socket, has_managers  ? Result<UniqueFd>(std::move(sockets.of_manager))
                                   : own.valid() ? Result<UniqueFd>(std::move(own))
                                                 : Listen(config.http_listen, store));
  Http::Pages pages = {.metrics = [&metrics] { return metrics.Text(); },
                       .status = [&] { return StatusPage(config, broker, verbs); },
                       .is_ready = [&verbs] { return !verbs.draining(); },
                       .hosts = config.http_hosts,
                       .other =
                           [&](std::string_view path, const Http::Query& query) {
                             if (path == "/tier.json") return std::optional(TierJson(verbs.tiers.numbers()));
                             const auto file = StatusFile(path);
                             return file ? file : StatusJson(path, query, config, verbs.lists);
                           }};
  auto http = Http::Adopt(std::move(socket), std::move(pages), config.limits);
  if (http.ok()) log::Info("metrics and status at http port {}", (*http)->port());
  return http;
}

}  // namespace arraybridge::daemon
