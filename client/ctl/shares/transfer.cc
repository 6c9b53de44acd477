// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/shares/transfer.h"

#include <filesystem>

namespace arraybridge::ctl {

Result<Broker> ClientOf(const Options& options) {
  AB_ASSIGN_OR_RETURN(const auto socket, FindBroker(options.address));
  Broker::Options its;
  its.address = std::filesystem::path(socket).parent_path() / "lifeline.sock";
  if (!options.ns.empty()) its.ns = options.ns;
  its.timeout = options.timeout;
  its.client = "arraybridgectl";
  its.token = options.token;
  return Broker(std::move(its));
}

}  // namespace arraybridge::ctl
