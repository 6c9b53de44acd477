// SPDX-License-Identifier: Apache-2.0
// There are four kinds of call. Most verbs answer at once; some may wait (LateAnswer); OpenSession is a stream whose
// end ends the session (SessionStream); Watch is a stream of events (WatchStream).
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
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/grpc/grpc_door_calls.h"
#include "daemon/service/grpc/grpc_door_connections.h"
#include "daemon/service/grpc/grpc_door_server.h"
#include "daemon/service/grpc/grpc_door_watch.h"
#include "daemon/service/grpc/status_grpc.h"
#include "daemon/service/system/closer.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/mutex.h"

namespace arraybridge::daemon {
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

// How long a request may wait: less than until the call's gRPC deadline. An eighth of the remaining time is left for
// the answer, so that the client receives the broker's error and not only DEADLINE_EXCEEDED.
uint64_t TimeoutUntil(std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) return UINT64_MAX;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::system_clock::now());
  const auto usable = static_cast<uint64_t>(std::max<int64_t>(left.count(), 0));
  return usable - usable / 8;
}

std::optional<Verb> VerbOf(std::string_view name) {
  for (uint16_t number = 1; number <= static_cast<uint16_t>(Verb::kLast); ++number) {
    if (NameOf(Verb{number}) == name) return Verb{number};
  }
  return std::nullopt;
}

// The service of the .proto file. gRPC passes the bytes of messages, as it does for methods that are marked raw.
class Service final : public grpc::Service {
 public:
  Service(Broker& broker, Verbs& verbs, GrpcDoorConnections& connections, SessionStreams& streams)
      : broker_(broker), verbs_(verbs), connections_(connections), streams_(streams) {
    const auto& described = *v1::MappedRequest::descriptor()->file()->FindServiceByName("Broker");
    for (int i = 0; i < described.method_count(); ++i) Add(i, described.method(i)->name());
  }

 private:
  using Context = grpc::CallbackServerContext;
  using Buffer = grpc::ByteBuffer;
  using Unary = grpc::ServerUnaryReactor;
  using Stream = grpc::ServerWriteReactor<Buffer>;
  using Method = grpc::internal::RpcServiceMethod;

  void Add(int index, const std::string& name) {
    const auto verb = VerbOf(name);
    AB_CHECK(verb);  // each method is a verb
    const bool streams = verb == Verb::kOpenSession || verb == Verb::kWatch;
    const char* const path = paths_.emplace_back(Concat("/", kServiceName, "/", name)).c_str();
    AddMethod(new Method(path, streams ? Method::SERVER_STREAMING : Method::NORMAL_RPC, nullptr));
    if (!streams) {
      return MarkMethodRawCallback(index, new grpc::internal::CallbackUnaryHandler<Buffer, Buffer>(
                                              [this, verb](Context* context, const Buffer* request, Buffer* answer) {
                                                return Serve(context, {*verb}, MessageBytes(*request).view(), answer);
                                              }));
    }
    MarkMethodRawCallback(index, new grpc::internal::CallbackServerStreamingHandler<Buffer, Buffer>(
                                     [this, verb](Context* context, const Buffer* request) {
                                       const MessageBytes bytes(*request);
                                       return verb == Verb::kWatch ? Watch(context, bytes.view())
                                                                   : OpenSession(context, bytes.view());
                                     }));
  }

  Traffic::InFlight Begin(const CallFacts& call) {
    return verbs_.counts().traffic.Begin(Door::kGrpc, static_cast<uint16_t>(call.verb));
  }

  Unary* Serve(Context* context, const CallFacts& call, std::string_view request, Buffer* answer) {
    auto caller = CallerWhoWaits(*context, call);
    if (!caller.ok()) return Finished(context, call, caller.status());
    caller->timeout_max_ms = TimeoutUntil(context->deadline());
    auto flight = Begin(call);
    LateAnswer* late = nullptr;  // gRPC owns it; OnDone deletes it
    const auto later = [&] {
      late = new LateAnswer(verbs_, call, context, answer, std::move(flight));
      return late->MakeReply(*caller);
    };
    auto served = verbs_.Serve(*caller, call.verb, request, std::ref(later));
    if (late != nullptr) {
      late->WaitsAs(served->waiter);
      return late;
    }
    flight.End();
    if (!served.ok()) return Finished(context, call, served.status(), caller->session);
    const Result<Answer>& now = *served->now;
    if (!now.ok()) return Finished(context, call, now.status(), caller->session);
    // The session may have mapped an exported arena before.
    if (context->IsCancelled() && call.verb != Verb::kExport) verbs_.TakeBack(*caller, call.verb, now->message);
    *answer = BufferOf(now->message);
    return Finished(context, call, Ok());
  }

  Stream* Refused(Context* context, const CallFacts& call, const Status& status) {
    Count(call, status.code());
    CountRefusal(*context, call, status);
    return new RefusedStream(ToGrpc(status));
  }

  Stream* OpenSession(Context* context, std::string_view bytes) {
    const CallFacts call{Verb::kOpenSession};
    const auto request = wire::Decode<wire::OpenSessionRequest>(bytes);
    if (!request.ok()) return Refused(context, call, request.status());
    auto flight = Begin(call);
    auto opened = Open(*context, *request);
    flight.End();
    if (!opened.ok()) return Refused(context, call, opened.status());
    Count(call, Code::kOk);
    const SessionId session{opened->session()};
    v1::SessionEvent event;
    *event.mutable_opened() = *std::move(opened);
    const auto stream = std::make_shared<SessionStream>(verbs_, streams_, context, session, event.SerializeAsString(),
                                                        !request->join.empty());
    stream->SayOpened();
    streams_.Add(stream);  // owns the stream until gRPC is done with it
    return stream.get();
  }

  Stream* Watch(Context* context, std::string_view bytes) {
    const CallFacts call{Verb::kWatch};
    const auto caller = CallerOf(*context);
    if (!caller.ok()) return Refused(context, call, caller.status());
    const auto request = wire::Decode<wire::WatchRequest>(bytes);
    if (!request.ok()) return Refused(context, call, request.status());
    return WatchStream::Begin(verbs_, call, *caller, *request);
  }

  Unary* Finished(Context* context, const CallFacts& call, const Status& status, SessionId session = {}) {
    Count(call, status.code());
    if (!status.ok()) CountRefusal(*context, call, status, session);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  // A caller without a session is identified by its connection, if that is still open.
  void CountRefusal(const Context& context, const CallFacts& call, const Status& status, SessionId session = {}) {
    if (session != SessionId{}) return verbs_.counts().CountRefusal(session, call.verb, status);
    const auto peer = connections_.PeerOf(context.peer());
    if (peer) return verbs_.counts().CountRefusal(*peer, call.verb, status);
    verbs_.counts().CountRefusal();
  }

  void Count(const CallFacts& call, Code code) {
    verbs_.counts().traffic.Count(Door::kGrpc, static_cast<uint16_t>(call.verb), code, Clock::now() - call.begun);
  }

  Result<v1::OpenSessionResponse> Open(const Context& context, const wire::OpenSessionRequest& request) {
    auto peer = connections_.PeerOf(context.peer());
    if (!peer) return Unavailable("the connection has ended");
    if (!request.join.empty()) {
      // Its caller calls again, and must find the session.
      if (context.IsCancelled()) return Status(Code::kCancelled, "the call ended before the broker executed it");
      return verbs_.sessions.Continue(request, *std::move(peer));
    }
    return verbs_.sessions.OpenSession(request, *std::move(peer));
  }

  // A request must not be executed after its caller has given up. gRPC restarts the caller's deadline when the call
  // arrives here, so the deadline does not show that; the cancellation, which follows the call, does.
  Result<Caller> CallerWhoWaits(const Context& context, const CallFacts& call) {
    if (call.verb == Verb::kGetServerInfo) return Caller{{}, Door::kGrpc};  // who asks this may have no session
    if (IsServedLate(call.verb) || !context.IsCancelled()) return CallerOf(context);
    return Status(Code::kCancelled,
                  Concat("the call ended before the broker executed this ", NameOf(call.verb), ": nothing was done"),
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
  std::deque<std::string> paths_;  // of the methods; gRPC keeps pointers to them
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

}  // namespace arraybridge::daemon
