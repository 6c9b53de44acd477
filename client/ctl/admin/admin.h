// SPDX-License-Identifier: Apache-2.0
// The commands of an operator, through the daemon's administration socket. The daemon decides who may use them.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arraybridge/v1/admin.grpc.pb.h"
#include "client/ctl/commands.h"
#include "client/ctl/output/listing.h"
#include "proto/boundary/result.h"

namespace arraybridge::ctl {

// Arguments of the commands below, beside Options.
struct AdminOptions {
  std::optional<uint32_t> uid;  // the owner of the namespace
  std::string subject;          // a namespace, a share or a file
  uint64_t session = 0;
  Selection listed;
  std::string device;
  std::string bytes;  // of a quota: "4GiB", or "default"
  bool now = false;
};

// One gRPC channel to the administration socket. Each call ends with the deadline of the command.
class AdminConnection {
 public:
  // UNAVAILABLE: no process listens there. PERMISSION_DENIED: this user must not connect.
  static Result<std::unique_ptr<AdminConnection>> To(const std::string& path, std::chrono::milliseconds timeout);

  template <class Request, class Answer>
  Status Ask(grpc::Status (v1::Admin::Stub::*verb)(grpc::ClientContext*, const Request&, Answer*),
             const Request& request, Answer* answer) {
    grpc::Status status;
    for (int turn = 0; turn < 2; ++turn) {
      grpc::ClientContext context;
      context.set_deadline(deadline_);
      if (!secret_.empty()) context.AddMetadata(kConnectionKey, secret_);
      status = (stub_.get()->*verb)(&context, request, answer);
      // The daemon answers the first call on a connection with a secret, which later calls state.
      const auto secret = context.GetServerTrailingMetadata().find(kConnectionKey);
      if (status.error_code() != grpc::StatusCode::UNAUTHENTICATED ||
          secret == context.GetServerTrailingMetadata().end()) {
        break;
      }
      secret_.assign(secret->second.data(), secret->second.size());
    }
    return {static_cast<Code>(status.error_code()), status.error_message()};
  }

 private:
  AdminConnection(std::shared_ptr<grpc::Channel> channel, std::chrono::system_clock::time_point deadline)
      : stub_(v1::Admin::NewStub(std::move(channel))), deadline_(deadline) {}

  static constexpr char kConnectionKey[] = "arraybridge-connection";

  const std::unique_ptr<v1::Admin::Stub> stub_;
  std::string secret_;
  const std::chrono::system_clock::time_point deadline_;
};

// As Connect, but to the administration socket.
Result<std::unique_ptr<AdminConnection>> ConnectAdmin(const Options& options);

using AdminCommand = Status (*)(AdminConnection&, const Options&, const AdminOptions&, std::ostream&);

Status GetQuota(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
Status SetQuota(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
Status EndSession(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
Status Withdraw(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
Status Trim(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
Status Reload(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
Status Drain(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
Status Shutdown(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
// Ends the daemon and waits for the next one, which the holder starts from the program on the disk.
// FAILED_PRECONDITION: there is no holder, or the next daemon has lost something. DEADLINE_EXCEEDED: no daemon answers.
Status Upgrade(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
// The shares that were lost when this daemon continued the one before it.
Status LsLost(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
Status ShowConfig(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);
// The rows of all users that `admin.listed` selects.
Status LsAll(AdminConnection& connection, const Options& options, const AdminOptions& admin, std::ostream& out);

}  // namespace arraybridge::ctl
