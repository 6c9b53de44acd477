// SPDX-License-Identifier: Apache-2.0
// The command info: it asks at the public door, and at the administration door for the names of lost shares.
#include <ostream>

#include "client/ctl/admin/admin.h"
#include "client/ctl/commands.h"
#include "client/ctl/output/print.h"

namespace arraybridge::ctl {
namespace {

// The names are for administrators: empty for another user.
google::protobuf::RepeatedPtrField<v1::LostShare> LostShares(const v1::GetServerInfoResponse& info,
                                                             const Options& options) {
  if (info.life().lost_shares() == 0) return {};
  const auto connection = ConnectAdmin(options);
  if (!connection.ok()) return {};
  v1::GetRecoveryResponse answer;
  static_cast<void>((*connection)->Ask(&v1::Admin::Stub::GetRecovery, v1::GetRecoveryRequest(), &answer));
  return answer.lost();
}

}  // namespace

Status Info(Connection& connection, const Options& options, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto info, connection.GetServerInfo());
  if (IsJson(options)) return PrintJson(info, options, out);
  PrintInfo(info, LostShares(info, options), StyleOf(options), out, options.header);
  return Ok();
}

}  // namespace arraybridge::ctl
