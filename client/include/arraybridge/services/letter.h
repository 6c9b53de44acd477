// SPDX-License-Identifier: Apache-2.0
// A ServiceLetter travels between a caller and a server of a service, beside the arrays: it is the metadata of a
// message in one of the service's channels. Programs do not need it: service.h has callers and servers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace arraybridge {

struct ServiceLetter {
  std::string kind{};            // what it says: client/services/letters.h
  std::string peer{};            // the caller in letters to servers, the server in letters to callers
  uint64_t number = 0;           // of the request, in its caller
  uint64_t due_ns = 0;           // the end of the caller's wait, of CLOCK_MONOTONIC; 0: none
  std::string text{};            // why there is no result
  bool retry = false;            // the server states that a request may be executed again
  std::vector<uint64_t> held{};  // of a server that ends: the requests that it may have executed in part
  uint64_t room = 0;             // for how many items of the answer the caller has room; 0: it takes one answer alone

  std::string Encoded() const;
  // Nothing: it is no letter. Another process wrote the bytes.
  static std::optional<ServiceLetter> Of(std::string_view metadata);
};

}  // namespace arraybridge
