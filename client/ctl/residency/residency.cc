// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/residency/residency.h"

#include "client/ctl/output/print.h"

namespace arraybridge::ctl {
namespace {

// A handle without a kind belongs to a share whose bytes are in no memory.
bool IsOnDisk(const v1::Handle& handle) { return handle.kind() == v1::HANDLE_KIND_UNSPECIFIED; }

Result<v1::TierResponse> FileOf(Connection& connection, const v1::Share& share) {
  v1::TierRequest request;
  request.set_namespace_(share.namespace_());
  request.set_name(share.name());
  request.set_generation(share.generation());
  request.set_action(v1::TierRequest::LIST);
  return connection.Tier(request);
}

const char* FileText(const v1::TieredShare& file) {
  if (file.lost()) return "none: it was damaged and is set aside; put the share again";
  if (!file.in_memory())
    return file.durable() ? "has the bytes, stays, digest checked at the next get"
                          : "has the bytes, digest checked at the next get";
  return "beside the memory; a later broker finds it";
}

}  // namespace

std::string ResidencyOf(const v1::Share& share) {
  if (IsOnDisk(share.handle())) return "disk";
  return DeviceName(share.handle().device()) == "cpu" ? "host" : "device";
}

void AddResidency(Table& table, Connection& connection, const v1::Share& share) {
  const auto found = FileOf(connection, share);
  const bool has_file = found.ok() && found->shares_size() > 0;
  table.Add({"residency", has_file && found->shares(0).lost() ? "lost" : ResidencyOf(share)});
  if (has_file) table.Add({"file", FileText(found->shares(0))});
}

std::string WhyOffered(const v1::Handle& handle) {
  if (!IsOnDisk(handle)) return "the kind of this share";
  return "its bytes are in a file: the next get reads them into memory, at the speed of the disk";
}

}  // namespace arraybridge::ctl
