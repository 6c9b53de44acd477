// SPDX-License-Identifier: Apache-2.0
// One thread runs libevent's evhttp. The kernel does not report the user of a TCP client, so clients are told apart by
// their address alone. A client could exhaust the daemon's descriptors, so HTTP accepts no connection while half of
// them are in use. It accepts a few at a time: a request that is sent at once is answered before its connection is old.
#include "daemon/service/http/http.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "daemon/service/http/http_connections.h"
#include "proto/boundary/endpoint.h"

namespace arraybridge::daemon {
namespace {

constexpr ev_ssize_t kHeaderBytesMax = 8192;
constexpr size_t kAcceptedAtOnce = 16;
constexpr timeval kPause{1, 0};  // before connections are accepted again
// The pages load nothing but the daemon's own files, and no site may frame them.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

struct Free {
  void operator()(bufferevent* one) const { ::bufferevent_decref(one); }
  void operator()(event_base* base) const { ::event_base_free(base); }
  void operator()(evhttp* server) const { ::evhttp_free(server); }
  void operator()(event* one) const { ::event_free(one); }
};

Status CannotListen(const std::string& address) {
  return Unavailable("http: cannot listen on ", address, ": ", std::strerror(errno));
}

// The lowest free descriptor number is about the number of descriptors in use.
bool DescriptorsAreScarce() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const UniqueFd probe(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
  return !probe.valid() || static_cast<rlim_t>(probe.get()) > limit.rlim_cur / 2;
}

// The name or address of a Host header, without port and brackets, in lower case.
Endpoint HostIn(std::string_view header) {
  Endpoint host;
  host.bracketed = header.starts_with('[');
  const size_t end = host.bracketed ? header.find(']') : header.find(':');
  host.host = header.substr(host.bracketed ? 1 : 0, end == header.npos ? end : end - (host.bracketed ? 1 : 0));
  if (host.host.ends_with('.')) host.host.pop_back();
  std::ranges::transform(host.host, host.host.begin(),
                         [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  return host;
}

// Whether the Host header names this daemon. An address is always accepted, because DNS cannot redirect it. A missing
// header is accepted, because a browser always sends one.
bool IsOurs(const char* header, const std::vector<std::string>& names) {
  if (header == nullptr) return true;
  const Endpoint host = HostIn(header);
  if (host.host == "localhost" || host.host.ends_with(".localhost")) return true;
  return NumericAddress(host).ok() || std::ranges::find(names, host.host) != names.end();
}

// A parameter that occurs twice has its last value. nullopt: the query cannot be read.
std::optional<Http::Query> QueryIn(const evhttp_uri* uri) {
  Http::Query query;
  const char* const text = uri == nullptr ? nullptr : ::evhttp_uri_get_query(uri);
  evkeyvalq pairs{};
  if (text == nullptr) return query;
  if (::evhttp_parse_query_str(text, &pairs) != 0) return std::nullopt;
  for (const evkeyval* each = pairs.tqh_first; each != nullptr; each = each->next.tqe_next)
    query[each->key] = each->value;
  ::evhttp_clear_headers(&pairs);
  return query;
}

}  // namespace

Result<UniqueFd> Http::Listen(const std::string& address) {
  const auto endpoint = ReadEndpoint(address);
  const auto numbers = endpoint.ok() ? NumericAddress(*endpoint) : endpoint.status();
  if (!numbers.ok()) return InvalidArgument("http '", address, "': ", numbers.status().message());
  UniqueFd socket(::socket(numbers->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return CannotListen(address);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), numbers->generic(), numbers->size) != 0) return CannotListen(address);
  if (::listen(socket.get(), SOMAXCONN) != 0) return CannotListen(address);
  return socket;
}

struct Http::State {
  State(Pages served, const Limits& its_limits) : pages(std::move(served)), limits(its_limits), connections(limits) {}

  Pages pages;
  const Limits limits;
  HttpConnections connections;
  uint16_t port = 0;
  UniqueFd stop{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  // The members are created in this order and destroyed in the reverse order.
  std::unique_ptr<event_base, Free> base{::event_base_new()};
  std::unique_ptr<evhttp, Free> server;
  evconnlistener* listener = nullptr;  // owned by the server
  std::unique_ptr<event, Free> stopped;
  std::unique_ptr<event, Free> resumed;
  std::unique_ptr<event, Free> counted;
  std::unique_ptr<event, Free> late;
  std::vector<std::unique_ptr<bufferevent, Free>> accepted;  // not yet counted
  std::thread thread;

  bufferevent* Accept();
  void CountAccepted();
  void ShutLate();
  void Answer(evhttp_request* request);
  static void Send(evhttp_request* request, int code, const char* type, std::string_view body);
};

void Http::State::Send(evhttp_request* request, int code, const char* type, std::string_view body) {
  evkeyvalq* const headers = ::evhttp_request_get_output_headers(request);
  ::evhttp_add_header(headers, "Content-Type", type);
  ::evhttp_add_header(headers, "Cache-Control", "no-store");
  ::evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
  ::evhttp_add_header(headers, "Content-Security-Policy", kPolicy);
  if (::evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
    // For HEAD: libevent would send a body, and sets Content-Length only if it sends one.
    ::evhttp_add_header(headers, "Content-Length", std::to_string(body.size()).c_str());
  } else {
    ::evbuffer_add(::evhttp_request_get_output_buffer(request), body.data(), body.size());
  }
  ::evhttp_send_reply(request, code, nullptr, nullptr);
}

// Called for each accepted connection, before it has its descriptor.
bufferevent* Http::State::Accept() {
  bufferevent* const fresh = ::bufferevent_socket_new(base.get(), -1, 0);
  if (fresh == nullptr) return nullptr;  // evhttp then fails in the same way, and closes the connection
  ::bufferevent_incref(fresh);
  accepted.emplace_back(fresh);
  ::event_active(counted.get(), EV_TIMEOUT, 0);
  if (accepted.size() >= kAcceptedAtOnce) ::evconnlistener_disable(listener);
  return fresh;
}

// Runs when all that were accepted have their descriptors, and before any is read.
void Http::State::CountAccepted() {
  std::vector<int> descriptors;
  for (const auto& each : accepted) descriptors.push_back(::bufferevent_getfd(each.get()));
  connections.Add(descriptors, HttpConnections::TimePoint::clock::now());
  accepted.clear();
  if (::event_pending(late.get(), EV_TIMEOUT, nullptr) == 0) ShutLate();
  if (DescriptorsAreScarce()) {
    ::evconnlistener_disable(listener);
    ::event_add(resumed.get(), &kPause);
  } else {
    ::evconnlistener_enable(listener);
  }
}

void Http::State::ShutLate() {
  const auto next = connections.ShutLate(HttpConnections::TimePoint::clock::now());
  if (!next) return;
  const timeval wait{next->count() / 1000, next->count() % 1000 * 1000};
  ::event_add(late.get(), &wait);
}

void Http::State::Answer(evhttp_request* request) {
  bufferevent* const its = ::evhttp_connection_get_bufferevent(::evhttp_request_get_connection(request));
  connections.Answered(::bufferevent_getfd(its), HttpConnections::TimePoint::clock::now());
  constexpr char kText[] = "text/plain; charset=utf-8";
  if (!IsOurs(::evhttp_find_header(::evhttp_request_get_input_headers(request), "Host"), pages.hosts)) {
    constexpr int kMisdirected = 421;
    return Send(request, kMisdirected, kText,
                "the Host of a request must be localhost, an address, or a name in the setting http.hosts\n");
  }
  const evhttp_uri* const uri = ::evhttp_request_get_evhttp_uri(request);
  const char* const found = uri == nullptr ? nullptr : ::evhttp_uri_get_path(uri);
  const std::string_view path = found == nullptr || *found == '\0' ? "/" : found;
  if (path == "/metrics") return Send(request, HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", pages.metrics());
  if (path == "/") return Send(request, HTTP_OK, "text/html; charset=utf-8", pages.status());
  if (path == "/healthz") return Send(request, HTTP_OK, kText, "ok\n");
  if (path == "/readyz" && pages.is_ready()) return Send(request, HTTP_OK, kText, "ready\n");
  if (path == "/readyz") return Send(request, HTTP_SERVUNAVAIL, kText, "draining\n");
  const auto query = QueryIn(uri);
  if (!query) return Send(request, HTTP_BADREQUEST, kText, "the parameters must have the form name=value&name=value\n");
  if (const auto page = pages.other ? pages.other(path, *query) : std::nullopt) {
    return Send(request, page->code, page->type, page->body);
  }
  Send(request, HTTP_NOTFOUND, kText,
       "not found; this server has /, /metrics, /healthz, /readyz, /info.json, /stats.json and /list.json\n");
}

Result<std::unique_ptr<Http>> Http::Open(const std::string& address, Pages pages, const Limits& limits) {
  AB_ASSIGN_OR_RETURN(auto socket, Listen(address));
  return Adopt(std::move(socket), std::move(pages), limits);
}

Result<std::unique_ptr<Http>> Http::Adopt(UniqueFd socket, Pages pages, const Limits& limits) {
  auto state = std::make_unique<State>(std::move(pages), limits);
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  state->port = ntohs(bound.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(bound).sin_port
                                                 : reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  if (!state->base || !state->stop.valid()) return ResourceExhausted("http: no descriptor left");
  state->server.reset(::evhttp_new(state->base.get()));
  evhttp* const server = state->server.get();
  ::evhttp_set_allowed_methods(server, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
  ::evhttp_set_max_headers_size(server, kHeaderBytesMax);
  ::evhttp_set_max_body_size(server, 0);
  // Silence; State::late ends what trickles.
  const auto patience = std::chrono::ceil<std::chrono::seconds>(limits.http_request_timeout);
  ::evhttp_set_timeout(server, static_cast<int>(std::min<int64_t>(patience.count(), std::numeric_limits<int>::max())));
  evhttp_bound_socket* const accepting = ::evhttp_accept_socket_with_handle(server, socket.get());
  if (accepting == nullptr) return ResourceExhausted("http: ", std::strerror(errno));
  socket.release();  // the server closes the socket
  state->listener = ::evhttp_bound_socket_get_listener(accepting);
  ::evhttp_set_gencb(
      server, [](evhttp_request* request, void* self) { static_cast<State*>(self)->Answer(request); }, state.get());
  ::evhttp_set_bevcb(
      server, [](event_base*, void* self) { return static_cast<State*>(self)->Accept(); }, state.get());
  state->counted.reset(::event_new(
      state->base.get(), -1, 0, [](evutil_socket_t, short, void* self) { static_cast<State*>(self)->CountAccepted(); },
      state.get()));
  state->late.reset(::event_new(
      state->base.get(), -1, 0, [](evutil_socket_t, short, void* self) { static_cast<State*>(self)->ShutLate(); },
      state.get()));
  state->resumed.reset(::event_new(
      state->base.get(), -1, 0,
      [](evutil_socket_t, short, void* listener) { ::evconnlistener_enable(static_cast<evconnlistener*>(listener)); },
      state->listener));
  state->stopped.reset(::event_new(
      state->base.get(), state->stop.get(), EV_READ,
      [](evutil_socket_t, short, void* base) { ::event_base_loopbreak(static_cast<event_base*>(base)); },
      state->base.get()));
  ::event_add(state->stopped.get(), nullptr);
  return std::unique_ptr<Http>(new Http(std::move(state)));
}

Http::Http(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->thread = std::thread([base = state_->base.get()] {
    ::pthread_setname_np(::pthread_self(), "ab-http");
    ::event_base_dispatch(base);
  });
}

Http::~Http() {
  ::eventfd_write(state_->stop.get(), 1);
  state_->thread.join();
}

uint16_t Http::port() const { return state_->port; }

}  // namespace arraybridge::daemon
