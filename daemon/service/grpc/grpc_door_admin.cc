// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_door_admin.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>

#include <optional>
#include <string_view>
#include <utility>

#include "arraybridge/v1/admin.grpc.pb.h"
#include "daemon/service/grpc/grpc_channelz.h"
#include "daemon/service/grpc/grpc_door_connections.h"
#include "daemon/service/grpc/grpc_door_server.h"
#include "daemon/service/grpc/status_grpc.h"
#include "daemon/service/system/closer.h"
#include "daemon/service/telemetry/log.h"
#include "daemon/service/telemetry/log_throttle.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {
namespace {

constexpr char kAdminServiceName[] = "arraybridge.v1.Admin";
constexpr char kConnectionKey[] = "arraybridge-connection";

// Finishes its call exactly once: with the result that it gets or, if it gets none, when it is destroyed.
template <class Message>
class Promise {
 public:
  Promise(grpc::ServerUnaryReactor* call, Message* answer) : call_(call), answer_(answer) {}
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;
  ~Promise() {
    if (call_ != nullptr) call_->Finish({grpc::StatusCode::UNAVAILABLE, "the broker is shutting down"});
  }
  void Keep(Result<Message> result) {
    const Status status = result.status();
    if (status.ok()) *answer_ = *std::move(result);
    std::exchange(call_, nullptr)->Finish(ToGrpc(status));
  }

 private:
  grpc::ServerUnaryReactor* call_;
  Message* const answer_;
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(Admin& admin, GrpcDoorConnections& connections) : admin_(admin), connections_(connections) {}

 private:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  Unary* List(Context* context, const v1::ListRequest* request, v1::ListResponse* answer) override {
    return AtOnce(context, Right::kRead, *request, answer, &Admin::List);
  }
  Unary* GetQuota(Context* context, const v1::GetQuotaRequest* request, v1::NamespaceQuota* answer) override {
    return AtOnce(context, Right::kRead, *request, answer, &Admin::GetQuota);
  }
  Unary* SetQuota(Context* context, const v1::SetQuotaRequest* request, v1::NamespaceQuota* answer) override {
    return AtOnce(context, Right::kWrite, *request, answer, &Admin::SetQuota);
  }
  Unary* EndSession(Context* context, const v1::EndSessionRequest* request, v1::EndSessionResponse* answer) override {
    return AtOnce(context, Right::kWrite, *request, answer, &Admin::EndSession);
  }
  Unary* Withdraw(Context* context, const v1::AdminWithdrawRequest* request,
                  v1::AdminWithdrawResponse* answer) override {
    return AtOnce(context, Right::kWrite, *request, answer, &Admin::Withdraw);
  }
  Unary* Drain(Context* context, const v1::DrainRequest* request, v1::DrainResponse* answer) override {
    return AtOnce(context, Right::kWrite, *request, answer, &Admin::Drain);
  }
  Unary* Shutdown(Context* context, const v1::ShutdownRequest* request, v1::ShutdownResponse* answer) override {
    return Later(context, Right::kWrite, *request, answer, &Admin::Shutdown);
  }
  Unary* GetRecovery(Context* context, const v1::GetRecoveryRequest* request,
                     v1::GetRecoveryResponse* answer) override {
    return AtOnce(context, Right::kRead, *request, answer, &Admin::GetRecovery);
  }
  Unary* Upgrade(Context* context, const v1::UpgradeRequest* request, v1::UpgradeResponse* answer) override {
    return Later(context, Right::kWrite, *request, answer, &Admin::Upgrade);
  }
  Unary* Trim(Context* context, const v1::TrimRequest* request, v1::TrimResponse* answer) override {
    return Later(context, Right::kWrite, *request, answer, &Admin::Trim);
  }
  Unary* Reload(Context* context, const v1::ReloadRequest* request, v1::ReloadResponse* answer) override {
    return Later(context, Right::kWrite, *request, answer, &Admin::Reload);
  }
  Unary* GetConfig(Context* context, const v1::GetConfigRequest* request, v1::GetConfigResponse* answer) override {
    return Later(context, Right::kRead, *request, answer, &Admin::GetConfig);
  }

  // gRPC can attribute a call of an ended connection to a later connection with the same number. A caller therefore
  // states a value that it can only have learned from an answer on this connection. Calls that change something are
  // logged.
  Status Check(Context& context, Right right, std::string_view what) {
    const auto known = connections_.KnownAs(context.peer());
    if (!known) return Unavailable("the connection has ended");
    const Peer* const peer = &known->peer;
    constexpr std::string_view kSuffix = "Request";
    if (what.ends_with(kSuffix)) what.remove_suffix(kSuffix.size());
    Status checked = admin_.Check(*peer, right);
    if (!checked.ok()) {
      LogRefusal(peer->uid, what);
      return checked;
    }
    const auto stated = context.client_metadata().find(kConnectionKey);
    if (stated == context.client_metadata().end() ||
        std::string_view(stated->second.data(), stated->second.size()) != known->secret) {
      context.AddTrailingMetadata(kConnectionKey, known->secret);
      return Status(Code::kUnauthenticated,
                    Concat("send '", kConnectionKey, "' of the trailing metadata with each call"),
                    "CONNECTION_NOT_STATED");
    }
    if (right == Right::kWrite) log::Info("administration: uid={} {}", peer->uid, what);
    return checked;
  }

  // Unauthorised clients can cause these lines, so they are throttled.
  void LogRefusal(uint32_t uid, std::string_view what) AB_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto dropped = refusals_.Admit(Clock::now(), log::LinesPerSecond());
    if (!dropped) return;
    log::Warn("administration refused: uid={} {}{}", uid, what,
              *dropped == 0 ? "" : Concat(" (and ", *dropped, " more)"));
  }

  template <class Request, class Message>
  Unary* AtOnce(Context* context, Right right, const Request& request, Message* answer,
                Result<Message> (Admin::*verb)(const Request&)) {
    auto* const call = context->DefaultReactor();
    const Status checked = Check(*context, right, Request::descriptor()->name());
    if (!checked.ok()) {
      call->Finish(ToGrpc(checked));
      return call;
    }
    auto result = (admin_.*verb)(request);
    const Status status = result.status();
    if (status.ok()) *answer = *std::move(result);
    call->Finish(ToGrpc(status));
    return call;
  }

  template <class Request, class Message>
  Unary* Later(Context* context, Right right, const Request& request, Message* answer,
               void (Admin::*verb)(const Request&, const Admin::Reply<Message>&)) {
    auto* const call = context->DefaultReactor();
    if (const Status status = Check(*context, right, Request::descriptor()->name()); !status.ok()) {
      call->Finish(ToGrpc(status));
      return call;
    }
    const auto promise = std::make_shared<Promise<Message>>(call, answer);
    (admin_.*verb)(request, [promise](Result<Message> result) { promise->Keep(std::move(result)); });
    return call;
  }

  Admin& admin_;
  GrpcDoorConnections& connections_;
  Mutex mutex_;
  LogThrottle refusals_ AB_GUARDED_BY(mutex_);
};

}  // namespace

struct AdminDoor::State {
  State(const Config& config, Admin& admin)
      : connections(config.limits),
        service(admin, connections),
        server(Start(config, admin, connections, service, reflection)) {}

  static std::unique_ptr<grpc::Server> Start(const Config& config, Admin& admin, GrpcDoorConnections& connections,
                                             grpc::Service& service, GrpcReflection& reflection) {
    WishForChannelz();
    return StartServer(config, service, reflection, kAdminServiceName, [&](grpc::ServerBuilder& builder) {
      GuardChannelz(builder, [&admin, &connections](const grpc::ServerContextBase& context) {
        const auto peer = connections.PeerOf(context.peer());
        return peer && admin.Check(*peer, Right::kRead).ok();
      });
    });
  }

  GrpcDoorConnections connections;
  AdminService service;
  GrpcReflection reflection{{kAdminServiceName, "grpc.channelz.v1.Channelz"}};
  std::unique_ptr<grpc::Server> server;  // destroyed first: its calls use all of the above
  Mutex mutex;
  bool draining AB_GUARDED_BY(mutex) = false;
};

AdminDoor::AdminDoor(const Config& config, Admin& admin) : state_(std::make_unique<State>(config, admin)) {}

AdminDoor::~AdminDoor() { Drain(Clock::now()); }

void AdminDoor::Adopt(UniqueFd connection, const Peer& peer) {
  MutexLock lock(state_->mutex);  // a server that is shutting down must not get another connection
  if (state_->draining || !state_->connections.Admit(connection.get(), peer)) return CloseAside(std::move(connection));
  grpc::AddInsecureChannelFromFd(state_->server.get(), connection.release());
}

void AdminDoor::Drain(Clock::time_point deadline) {
  {
    MutexLock lock(state_->mutex);
    if (std::exchange(state_->draining, true)) return;
  }
  state_->server->GetHealthCheckService()->SetServingStatus(false);
  state_->server->Shutdown(std::chrono::system_clock::now() + (deadline - Clock::now()));
}

}  // namespace arraybridge::daemon
