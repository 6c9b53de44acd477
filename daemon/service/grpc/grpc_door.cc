// SPDX-License-Identifier: Apache-2.0
// There are four kinds of call. Most verbs answer at once; Allocate and Acquire may wait (LateAnswer); OpenSession is a
// stream whose end ends the session (SessionStream); Watch is a stream of events (WatchStream).
//
// Rights are bound to the session's token. A connection's credentials matter only in OpenSession, which finds them by
// peer() = "fd:N". gRPC closes N by itself, and the kernel reuses N for the next connection. A call that starts after
// its connection has ended may therefore find the credentials of the next one. It then opens a session whose token goes
// to a dead stream, and the end of that stream ends the session. No client learns the token, and none gains a right.
#include "daemon/service/grpc/grpc_door.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "arraybridge/v1/broker.grpc.pb.h"
#include "daemon/service/grpc/grpc_door_calls.h"
#include "daemon/service/grpc/grpc_door_connections.h"
#include "daemon/service/grpc/grpc_door_server.h"
#include "daemon/service/grpc/grpc_door_watch.h"
#include "daemon/service/grpc/status_grpc.h"
#include "daemon/service/system/closer.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {
namespace {

constexpr char kServiceName[] = "arraybridge.v1.Broker";
constexpr char kSessionKey[] = "arraybridge-session";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<Token> TokenOfHex(std::string_view hex) {
  Token token;
  if (hex.size() != 2 * token.size()) return std::nullopt;
  for (size_t i = 0; i < token.size(); ++i) {
    const int high = HexDigit(hex[2 * i]);
    const int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    token[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return token;
}

// Limits the timeout to less than the call's gRPC deadline: an eighth of the remaining time is left for the answer, so
// that the client receives the broker's error and not only DEADLINE_EXCEEDED.
uint64_t CappedTimeout(uint64_t timeout_ms, std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) return timeout_ms;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::system_clock::now());
  const auto usable = static_cast<uint64_t>(std::max<int64_t>(left.count(), 0));
  return std::min(timeout_ms, usable - usable / 8);
}

class Service final : public v1::Broker::CallbackService {
 public:
  Service(Broker& broker, Verbs& verbs, GrpcDoorConnections& connections, SessionStreams& streams)
      : broker_(broker), verbs_(verbs), connections_(connections), streams_(streams) {}

 private:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;

  // Counts the call as in flight while `serve` runs.
  template <class Serve>
  auto Serving(const Asked& asked, Serve serve) {
    const auto flight = verbs_.counts().traffic.Begin(Door::kGrpc, static_cast<uint16_t>(asked.verb));
    return serve();
  }

  Unary* GetServerInfo(Context* context, const v1::GetServerInfoRequest*, v1::GetServerInfoResponse* answer) override {
    const Asked asked{Verb::kGetServerInfo};
    *answer = Serving(asked, [&] { return verbs_.lists.GetServerInfo(); });
    return Finished(context, asked, Ok());
  }
  grpc::ServerWriteReactor<v1::SessionEvent>* OpenSession(Context* context,
                                                          const v1::OpenSessionRequest* request) override {
    const Asked asked{Verb::kOpenSession};
    auto opened = Serving(asked, [&] { return Open(*context, *request); });
    Count(asked, opened.status().code());
    if (!opened.ok()) {
      CountRefusal(*context, asked, opened.status());
      return new RefusedStream<v1::SessionEvent>(ToGrpc(opened.status()));
    }
    const bool is_continued = !request->join().empty();
    const auto stream = std::make_shared<SessionStream>(verbs_, streams_, context, *std::move(opened), is_continued);
    stream->SayOpened();
    streams_.Add(stream);  // owns the stream until gRPC is done with it
    return stream.get();
  }
  Unary* Allocate(Context* context, const v1::AllocateRequest* request, v1::AllocateResponse* answer) override {
    return Late(context, {Verb::kAllocate}, *request, answer, verbs_.arenas, &ArenaVerbs::Allocate);
  }
  Unary* Acquire(Context* context, const v1::AcquireRequest* request, v1::AcquireResponse* answer) override {
    const std::string bytes = request->SerializeAsString();
    auto asked = ReadAcquire(bytes);
    if (!asked.ok()) return Finished(context, {Verb::kAcquire}, asked.status());
    asked->timeout_ms = CappedTimeout(asked->timeout_ms, context->deadline());
    return Started(context, {Verb::kAcquire}, std::as_const(*asked), answer, verbs_.shares, &ShareVerbs::Acquire);
  }
  Unary* OpenChannel(Context* context, const v1::OpenChannelRequest* request,
                     v1::OpenChannelResponse* answer) override {
    return AtOnce(context, {Verb::kOpenChannel}, *request, answer, verbs_.channels, &ChannelVerbs::OpenChannel);
  }
  Unary* CloseChannel(Context* context, const v1::CloseChannelRequest* request,
                      v1::CloseChannelResponse* answer) override {
    return AtOnce(context, {Verb::kCloseChannel}, *request, answer, verbs_.channels, &ChannelVerbs::CloseChannel);
  }
  Unary* Receive(Context* context, const v1::ReceiveRequest* request, v1::AcquireResponse* answer) override {
    return Late(context, {Verb::kReceive}, *request, answer, verbs_.channels, &ChannelVerbs::Receive);
  }
  Unary* Mapped(Context* context, const v1::MappedRequest* request, v1::MappedResponse* answer) override {
    return AtOnce(context, {Verb::kMapped}, *request, answer, verbs_.arenas, &ArenaVerbs::Mapped);
  }
  Unary* Publish(Context* context, const v1::PublishRequest* request, v1::PublishResponse* answer) override {
    const std::string bytes = request->SerializeAsString();
    auto read = ReadPublish(bytes);
    if (!read.ok()) return Finished(context, {Verb::kPublish}, read.status());
    read->timeout_ms = CappedTimeout(read->timeout_ms, context->deadline());
    const PublishAsked& asked = *read;
    if (asked.channel != 0)
      return Started(context, {Verb::kPublish}, asked, answer, verbs_.channels, &ChannelVerbs::Send);
    if (asked.sealed)
      return Started(context, {Verb::kPublish}, asked, answer, verbs_.publishes, &PublishVerbs::PublishSealed);
    return AtOnce(context, {Verb::kPublish}, asked, answer, verbs_.publishes, &PublishVerbs::Publish);
  }
  Unary* Export(Context* context, const v1::ExportRequest* request, v1::ExportResponse* answer) override {
    return AtOnce(context, {Verb::kExport}, *request, answer, verbs_.arenas, &ArenaVerbs::Export);
  }
  Unary* Release(Context* context, const v1::ReleaseRequest* request, v1::ReleaseResponse* answer) override {
    return AtOnce(context, {Verb::kRelease}, *request, answer, verbs_.shares, &ShareVerbs::Release);
  }
  Unary* Withdraw(Context* context, const v1::WithdrawRequest* request, v1::WithdrawResponse* answer) override {
    return AtOnce(context, {Verb::kWithdraw}, *request, answer, verbs_.shares, &ShareVerbs::Withdraw);
  }
  Unary* List(Context* context, const v1::ListRequest* request, v1::ListResponse* answer) override {
    return AtOnce(context, {Verb::kList}, *request, answer, verbs_.lists, &ListVerbs::List);
  }
  Unary* GetStats(Context* context, const v1::GetStatsRequest* request, v1::GetStatsResponse* answer) override {
    return AtOnce(context, {Verb::kGetStats}, *request, answer, verbs_.lists, &ListVerbs::GetStats);
  }

  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(Context* context, const v1::WatchRequest* request) override {
    const Asked asked{Verb::kWatch};
    const auto caller = CallerOf(*context);
    if (caller.ok()) return WatchStream::Begin(verbs_, asked, *caller, *request);
    Count(asked, caller.status().code());
    CountRefusal(*context, asked, caller.status());
    return new RefusedStream<v1::WatchResponse>(ToGrpc(caller.status()));
  }
  Unary* Inspect(Context* context, const v1::InspectRequest* request, v1::InspectResponse* answer) override {
    return AtOnce(context, {Verb::kInspect}, *request, answer, verbs_.lists, &ListVerbs::Inspect);
  }

  template <class Request, class Message, class Noun>
  Unary* AtOnce(Context* context, Asked asked, Request& request, Message* answer, Noun& noun,
                Result<Answer<Message>> (Noun::*verb)(const Caller&, Request&)) {
    const auto caller = CallerWhoWaits(*context, asked);
    if (!caller.ok()) return Finished(context, asked, caller.status());
    auto result = Serving(asked, [&] { return (noun.*verb)(*caller, request); });
    if (!result.ok()) return Finished(context, asked, result.status(), caller->session);
    *answer = std::move(result->message);
    return Finished(context, asked, Ok());
  }

  template <class Request, class Message, class Noun>
  Unary* Late(Context* context, Asked asked, Request request, Message* answer, Noun& noun,
              WaiterId (Noun::*verb)(const Caller&, const Request&, const Reply<Message>&)) {
    request.set_timeout_ms(CappedTimeout(request.timeout_ms(), context->deadline()));
    return Started(context, asked, std::as_const(request), answer, noun, verb);
  }

  template <class Request, class Message, class Noun>
  Unary* Started(Context* context, Asked asked, Request& request, Message* answer, Noun& noun,
                 WaiterId (Noun::*verb)(const Caller&, Request&, const Reply<Message>&)) {
    const auto caller = CallerWhoWaits(*context, asked);
    if (!caller.ok()) return Finished(context, asked, caller.status());
    auto* call = new LateAnswer<Message>(verbs_, asked, context, answer);  // gRPC owns it; OnDone deletes it
    call->WaitsAs((noun.*verb)(*caller, request, call->MakeReply(*caller)));
    return call;
  }

  Unary* Finished(Context* context, const Asked& asked, const Status& status, SessionId session = {}) {
    Count(asked, status.code());
    if (!status.ok()) CountRefusal(*context, asked, status, session);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  // A caller without a session is identified by its connection, if that is still open.
  void CountRefusal(const Context& context, const Asked& asked, const Status& status, SessionId session = {}) {
    if (session != SessionId{}) return verbs_.counts().CountRefusal(session, asked.verb, status);
    const auto peer = connections_.PeerOf(context.peer());
    if (peer) return verbs_.counts().CountRefusal(*peer, asked.verb, status);
    verbs_.counts().CountRefusal();
  }

  void Count(const Asked& asked, Code code) {
    verbs_.counts().traffic.Count(Door::kGrpc, static_cast<uint16_t>(asked.verb), code, Clock::now() - asked.begun);
  }

  Result<v1::OpenSessionResponse> Open(const Context& context, const v1::OpenSessionRequest& request) {
    auto peer = connections_.PeerOf(context.peer());
    if (!peer) return Unavailable("the connection has ended");
    if (!request.join().empty()) {
      // Its caller calls again, and must find the session.
      if (context.IsCancelled()) return Status(Code::kCancelled, "the call ended before the broker executed it");
      return verbs_.sessions.Continue(request, *std::move(peer));
    }
    return verbs_.sessions.OpenSession(request, *std::move(peer));
  }

  // A request must not be executed after its caller has given up. gRPC restarts the caller's deadline when the call
  // arrives here, so the deadline does not show that; the cancellation, which follows the call, does.
  Result<Caller> CallerWhoWaits(const Context& context, const Asked& asked) {
    if (IsServedLate(asked.verb) || !context.IsCancelled()) return CallerOf(context);
    return Status(Code::kCancelled,
                  Concat("the call ended before the broker executed this ", NameOf(asked.verb), ": nothing was done"),
                  "NOT_SERVED");
  }

  Result<Caller> CallerOf(const Context& context) {
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find(kSessionKey);
    if (found == metadata.end()) {
      return Status{Code::kUnauthenticated,
                    "the call names no session: set metadata 'arraybridge-session' to OpenSession's token in hex",
                    "NO_SESSION"};
    }
    const auto token = TokenOfHex({found->second.data(), found->second.size()});
    const auto session = token ? broker_.SessionOf(*token) : NotFound("not a token");
    if (!session.ok()) return UnknownSession();
    // Another user's token is refused as an unknown token.
    const auto uid = broker_.UidOf(*session);
    const auto user = connections_.UidOf(context.peer());
    if (!uid.ok() || user != *uid) return UnknownSession();
    return Caller{*session, Door::kGrpc};
  }

  static Status UnknownSession() {
    return {Code::kUnauthenticated,
            "metadata 'arraybridge-session' names no open session; a session ends with its stream", "UNKNOWN_SESSION"};
  }

  Broker& broker_;
  Verbs& verbs_;
  GrpcDoorConnections& connections_;
  SessionStreams& streams_;
};

}  // namespace

struct GrpcDoor::State {
  State(const Config& config, Broker& broker, Verbs& all_verbs)
      : verbs(all_verbs),
        connections(config.limits),
        service(broker, verbs, connections, streams),
        server(StartServer(config, service, reflection, kServiceName)) {}

  Verbs& verbs;
  GrpcDoorConnections connections;
  SessionStreams streams;
  Service service;
  GrpcReflection reflection{{kServiceName}};
  std::unique_ptr<grpc::Server> server;  // destroyed first: its calls use all of the above
  Mutex mutex;
  bool draining AB_GUARDED_BY(mutex) = false;
};

GrpcDoor::GrpcDoor(const Config& config, Broker& broker, Verbs& verbs)
    : state_(std::make_unique<State>(config, broker, verbs)) {
  verbs.cuts().Set(Door::kGrpc, [this](SessionId session, std::string_view why) {
    if (state_->streams.Cancel(session)) {
      log::Warn("session ended: session={} {}", Number(session), why);
    } else {
      state_->verbs.sessions.EndAwaitedSoon(session);
    }
  });
}

GrpcDoor::~GrpcDoor() {
  state_->verbs.cuts().Set(Door::kGrpc, {});
  Drain(Clock::now());
}

void GrpcDoor::Adopt(UniqueFd connection, const Peer& peer) {
  MutexLock lock(state_->mutex);  // a server that is shutting down must not get another connection
  if (state_->draining || !state_->connections.Admit(connection.get(), peer)) return CloseAside(std::move(connection));
  grpc::AddInsecureChannelFromFd(state_->server.get(), connection.release());
}

void GrpcDoor::SetServing(const std::string& service, bool serving) {
  MutexLock lock(state_->mutex);
  if (state_->draining) return;
  state_->server->GetHealthCheckService()->SetServingStatus(service, serving);
}

void GrpcDoor::SayDraining() {
  MutexLock lock(state_->mutex);
  if (!state_->draining) state_->server->GetHealthCheckService()->SetServingStatus(false);
}

void GrpcDoor::Drain(Clock::time_point deadline) {
  {
    MutexLock lock(state_->mutex);
    if (std::exchange(state_->draining, true)) return;
  }
  state_->server->GetHealthCheckService()->SetServingStatus(false);
  state_->streams.Drain();
  state_->server->Shutdown(std::chrono::system_clock::now() + (deadline - Clock::now()));
}

}  // namespace arraybridge
