// SPDX-License-Identifier: Apache-2.0
// Http serves pages that are read without a session: /metrics, /healthz, /readyz, a status page at / and what its
// script reads. It changes nothing, and it listens on loopback unless configured otherwise.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {

class Http {
 public:
  struct Page {
    int code = 0;
    const char* type = nullptr;  // of its content
    std::string body;
  };
  using Query = std::map<std::string, std::string>;  // the parameters in the address, decoded

  // Each function is called on Http's own thread, for one request at a time.
  struct Pages {
    std::function<std::string()> metrics;  // Prometheus' text format
    std::function<std::string()> status;   // HTML
    std::function<bool()> is_ready;
    // Names that are accepted in a Host header, in addition to localhost and addresses, in lower case. Other names are
    // refused, so that a web page of another site cannot read these pages by DNS rebinding.
    std::vector<std::string> hosts;
    // The page at any other path; nullopt: there is none.
    std::function<std::optional<Page>(std::string_view path, const Query& query)> other;
  };

  // A listening socket. `address`: HOST:PORT with an IPv4 address or an IPv6 address in brackets; port 0: any free
  // port. INVALID_ARGUMENT: it has another form. UNAVAILABLE: the daemon cannot listen on it.
  static Result<UniqueFd> Listen(const std::string& address);
  // As Listen, then Adopt.
  static Result<std::unique_ptr<Http>> Open(const std::string& address, Pages pages, const Limits& limits = {});
  // Serves a TCP socket that is already listening. RESOURCE_EXHAUSTED: no descriptor is left.
  static Result<std::unique_ptr<Http>> Adopt(UniqueFd socket, Pages pages, const Limits& limits = {});
  // Waits until the current page, if any, has been written.
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  uint16_t port() const;

 private:
  struct State;
  explicit Http(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace arraybridge::daemon
