// Http serves what may be read without asking the broker for anything: /metrics, /healthz, /readyz and a page for
// people at /. It changes nothing, and listens on loopback unless it is told otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/boundary/result.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge {

class Http {
 public:
  // Each is asked on Http's own thread, one request at a time.
  struct Pages {
    std::function<std::string()> metrics;  // Prometheus' text format
    std::function<std::string()> status;   // HTML
    std::function<bool()> is_ready;
    // Names by which the door may be asked for beside localhost and addresses, in lower case. Another name is refused:
    // a page of a stranger's whose name is made to lead here (DNS rebinding) reads nothing.
    std::vector<std::string> hosts;
  };

  // `address`: HOST:PORT, an IPv4 address or an IPv6 one in brackets; port 0: any. INVALID_ARGUMENT: it is none.
  // UNAVAILABLE: it cannot be listened on.
  static Result<std::unique_ptr<Http>> Open(const std::string& address, Pages pages);
  // On a TCP socket that listens already. RESOURCE_EXHAUSTED: no descriptor is left.
  static Result<std::unique_ptr<Http>> Adopt(UniqueFd socket, Pages pages);
  // Waits for the page that is being written, if any.
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  uint16_t port() const;

 private:
  struct State;
  explicit Http(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace arraybridge
