// SPDX-License-Identifier: Apache-2.0
// The gRPC socket beside a bare gRPC server that answers the same message with the same kind of accept loop. With
// --serving 1 --socket PATH this program is that server.
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "arraybridge/v1/broker.grpc.pb.h"
#include "tests/bench/support.h"

namespace arraybridge::bench {
namespace {

class BareService final : public v1::Broker::CallbackService {
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context, const v1::GetStatsRequest*,
                                     v1::GetStatsResponse* response) override {
    response->set_sessions(1);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

[[noreturn]] void Serve(const std::string& path) {
  BareService service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) Fail("socket path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener, 64) != 0) {
    Fail("cannot listen");
  }
  if (::write(STDOUT_FILENO, "ready\n", 6) != 6) std::exit(1);
  for (;;) {
    const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) Fail("accept");
    grpc::AddInsecureChannelFromFd(server.get(), connection);
  }
}

class Client {
 public:
  explicit Client(const std::string& path) {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Broker::NewStub(grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), own));
  }
  // The session's token; empty for the bare server, which has no sessions.
  void OpenSession() {
    v1::OpenSessionRequest request;
    request.set_protocol_min(1);
    request.set_protocol_max(1);
    request.set_client("bench");
    session_stream_ = stub_->OpenSession(&session_context_, request);
    v1::SessionEvent event;
    if (!session_stream_->Read(&event)) Fail("no session: " + session_stream_->Finish().error_message());
    static constexpr char digits[] = "0123456789abcdef";
    for (const char c : event.opened().token()) {
      const auto byte = static_cast<unsigned char>(c);
      token_ += digits[byte >> 4];
      token_ += digits[byte & 15];
    }
  }
  void Call() {
    grpc::ClientContext context;
    if (!token_.empty()) context.AddMetadata("arraybridge-session", token_);
    v1::GetStatsResponse response;
    const grpc::Status status = stub_->GetStats(&context, v1::GetStatsRequest(), &response);
    if (!status.ok()) Fail("gRPC: " + status.error_message());
  }
  ~Client() { session_context_.TryCancel(); }

 private:
  std::unique_ptr<v1::Broker::Stub> stub_;
  grpc::ClientContext session_context_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> session_stream_;
  std::string token_;
};

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) {
  using namespace arraybridge::bench;
  const Arguments arguments(argc, argv);
  if (arguments.Number("serving", 0) != 0) Serve(arguments.Text("socket"));
  Client bare(arguments.Text("echo"));
  Client door(arguments.Text("address") + "/broker.sock");
  door.OpenSession();
  const auto times = Interleaved(arguments.Number("rounds", 15), 200, {[&] { bare.Call(); }, [&] { door.Call(); }});
  Print("grpc_unary", {{"floor", times[0]}, {"value", times[1]}});
}
