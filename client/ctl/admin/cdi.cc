// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/admin/cdi.h"

#include <filesystem>
#include <ostream>
#include <string>

#include "client/ctl/output/json.h"

namespace arraybridge::ctl {

Status PrintCdi(const Options& options, std::ostream& out) {
  const auto socket = FindBroker(options.address);
  if (!socket.ok()) return Status(socket.status()).Because(kUsageReason);
  // The directory is mounted, not the sockets: a restarted broker makes new sockets in it.
  const std::string directory = std::filesystem::absolute(*socket).lexically_normal().parent_path();
  std::string mounted;
  JsonWriter(false, &mounted).Text(directory);
  out << R"({
 "cdiVersion": "0.5.0",
 "kind": "arraybridge.org/broker",
 "devices": [
  {
   "name": "host",
   "containerEdits": {
    "env": ["ARRAYBRIDGE_ADDRESS=/run/arraybridge"],
    "mounts": [
     {
      "hostPath": )"
      << mounted << R"(,
      "containerPath": "/run/arraybridge",
      "options": ["rbind", "rw", "nosuid", "nodev", "noexec"]
     }
    ]
   }
  }
 ]
}
)";
  return Ok();
}

}  // namespace arraybridge::ctl
