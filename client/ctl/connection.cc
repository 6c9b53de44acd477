// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/connection.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <arraybridge/address.h>

#include "proto/boundary/endpoint.h"
#include "proto/boundary/frame.h"
#include "proto/boundary/text.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::ctl {
namespace {

std::string SocketIn(std::string directory, const std::string& socket) {
  if (!directory.ends_with('/')) directory += '/';
  return directory + socket;
}

Result<std::string> SocketOf(const std::string& address, const std::string& socket) {
  constexpr std::string_view scheme = "unix://";
  if (address.starts_with(scheme)) return address.substr(scheme.size());
  const bool is_endpoint = address.starts_with("tcp://") || ReadEndpoint(address).ok();
  if (is_endpoint || address.find("://") != std::string::npos) {
    const char* const instead =
        "; TCP was removed in 0.2.0: run `ssh HOST arraybridgectl`, or forward a socket with `ssh -L`";
    return InvalidArgument("address '", address, "': expected a directory or unix:///path", is_endpoint ? instead : "");
  }
  return SocketIn(address, socket);
}

Status FromGrpc(const grpc::Status& status) { return {static_cast<Code>(status.error_code()), status.error_message()}; }

Result<UniqueFd> ConnectTo(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name.sun_path)) {
    return InvalidArgument("socket path '", path, "' must have 1 to ", sizeof(name.sun_path) - 1, " bytes");
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  UniqueFd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (socket.valid() && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0) {
    return socket;
  }
  const int error = errno;
  const auto code = error == EACCES || error == EPERM ? Code::kPermissionDenied : Code::kUnavailable;
  return Status{code, Concat("cannot connect to ", path, ": ", std::strerror(error))}.Because(kNoConnectionReason);
}

}  // namespace

Result<std::string> FindBroker(const std::string& address, const std::string& socket) {
  if (!address.empty()) return SocketOf(address, socket);
  return SocketOf(FindAddress(socket), socket);
}

Result<std::shared_ptr<grpc::Channel>> ChannelTo(const std::string& path) {
  AB_ASSIGN_OR_RETURN(auto socket, ConnectTo(path));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // unlimited: the pages come from our own broker, which limits them
  return grpc::CreateCustomInsecureChannelFromFd("arraybridged", socket.release(), arguments);
}

Result<std::unique_ptr<Connection>> Connection::To(const std::string& path, std::chrono::milliseconds timeout,
                                                   std::string token) {
  const auto deadline = std::chrono::system_clock::now() + timeout;
  AB_ASSIGN_OR_RETURN(auto channel, ChannelTo(path));
  return std::unique_ptr<Connection>{new Connection{std::move(channel), deadline, std::move(token)}};
}

Connection::Connection(std::shared_ptr<grpc::Channel> channel, std::chrono::system_clock::time_point deadline,
                       std::string token)
    : stub_(v1::Broker::NewStub(std::move(channel))), deadline_(deadline), token_(std::move(token)) {}

Connection::~Connection() {
  if (stream_ == nullptr) return;
  stream_context_.TryCancel();
  static_cast<void>(stream_->Finish());  // CANCELLED, by ourselves
}

Result<v1::GetServerInfoResponse> Connection::GetServerInfo() {
  grpc::ClientContext context;
  Prepare(context);
  v1::GetServerInfoResponse answer;
  const auto status = stub_->GetServerInfo(&context, {}, &answer);
  if (!status.ok()) return FromGrpc(status);
  return answer;
}

template <class Request, class Response>
Result<Response> Connection::Ask(grpc::Status (v1::Broker::Stub::*verb)(grpc::ClientContext*, const Request&,
                                                                        Response*),
                                 const Request& request) {
  Response response;
  AB_RETURN_IF_ERROR(AskInto(&response, verb, request));
  return response;
}

template <class Request, class Response>
Status Connection::AskInto(Response* response,
                           grpc::Status (v1::Broker::Stub::*verb)(grpc::ClientContext*, const Request&, Response*),
                           const Request& request) {
  if (session_.empty()) AB_RETURN_IF_ERROR(OpenSession());
  grpc::ClientContext context;
  Prepare(context);
  const auto status = (stub_.get()->*verb)(&context, request, response);
  return status.ok() ? Ok() : FromGrpc(status);
}

Result<v1::GetStatsResponse> Connection::GetStats() { return Ask(&v1::Broker::Stub::GetStats, v1::GetStatsRequest()); }

Result<v1::InspectResponse> Connection::Inspect(const v1::InspectRequest& request) {
  return Ask(&v1::Broker::Stub::Inspect, request);
}

Result<v1::WithdrawResponse> Connection::Withdraw(const v1::WithdrawRequest& request) {
  return Ask(&v1::Broker::Stub::Withdraw, request);
}

Result<v1::TierResponse> Connection::Tier(const v1::TierRequest& request) {
  return Ask(&v1::Broker::Stub::Tier, request);
}

Status Connection::Watch(const v1::WatchRequest& request, const std::function<Result<bool>()>& opened,
                         const std::function<bool(const v1::Event&)>& take) {
  if (const auto info = GetServerInfo(); !info.ok()) return info.status();  // within the deadline
  AB_RETURN_IF_ERROR(OpenSession(true));
  grpc::ClientContext context;
  context.AddMetadata("arraybridge-session", session_);
  const auto stream = stub_->Watch(&context, request);
  v1::WatchResponse response;
  Result<bool> wanted = true;
  // The first answer has no events; it means that the stream is open.
  for (bool first = true; wanted.ok() && *wanted && stream->Read(&response); first = false) {
    if (first) wanted = opened();
    for (int i = 0; wanted.ok() && *wanted && i < response.events_size(); ++i) wanted = take(response.events(i));
  }
  const bool ended_it = !wanted.ok() || !*wanted;
  if (ended_it) context.TryCancel();
  const auto status = stream->Finish();
  if (ended_it) return wanted.status();
  return status.ok() || status.error_code() == grpc::StatusCode::CANCELLED ? Unavailable("the broker ended the watch")
                                                                           : FromGrpc(status);
}

Status Connection::ListPage(const v1::ListRequest& request, v1::ListResponse* page) {
  return AskInto(page, &v1::Broker::Stub::List, request);
}

Result<v1::ListResponse> Connection::List(v1::ListRequest request) {
  v1::ListResponse all;
  for (;;) {
    v1::ListResponse page;
    AB_RETURN_IF_ERROR(ListPage(request, &page));
    request.set_page_token(page.next_page_token());
    page.clear_next_page_token();
    all.MergeFrom(page);
    if (request.page_token().empty()) return all;
  }
}

Status Connection::OpenSession(bool lasting) {
  v1::OpenSessionRequest request;
  request.set_protocol_min(kProtocolVersion);
  request.set_protocol_max(kProtocolVersion);
  request.set_client("arraybridgectl");
  request.set_token(token_);
  request.set_process_id(static_cast<uint64_t>(::getpid()));
  if (!lasting) Prepare(stream_context_);
  stream_ = stub_->OpenSession(&stream_context_, request);
  v1::SessionEvent event;
  if (stream_->Read(&event) && event.has_opened()) {
    session_ = Hex(event.opened().token());
    session_number_ = event.opened().session();
    return Ok();
  }
  stream_context_.TryCancel();  // in case of an unexpected answer; a refusal has ended the stream already
  const auto status = stream_->Finish();
  stream_ = nullptr;
  return status.ok() ? Unavailable("the broker is draining") : FromGrpc(status);
}

void Connection::Prepare(grpc::ClientContext& context) const {
  context.set_deadline(deadline_);
  if (!session_.empty()) context.AddMetadata("arraybridge-session", session_);
}

}  // namespace arraybridge::ctl
