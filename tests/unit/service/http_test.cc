// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/http/http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <vector>

#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpTest : public testing::Test {
 protected:
  HttpTest() {
    auto opened = Http::Open("127.0.0.1:0", {[] { return std::string("a_metric 1\n"); },
                                             [] { return std::string("<html>"); },
                                             [this] { return ready_.load(); },
                                             {"gpu7.example.org"}});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    http_ = *std::move(opened);
  }

  UniqueFd Connect() const {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(http_->port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return socket;
  }
  // Returns everything that the server sends until it closes.
  static std::string Answer(const UniqueFd& socket) {
    std::string all;
    char part[4096];
    for (ssize_t got; (got = ::recv(socket.get(), part, sizeof part, 0)) > 0;)
      all.append(part, static_cast<size_t>(got));
    return all;
  }
  std::string Ask(const std::string& request) const {
    const UniqueFd socket = Connect();
    EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    return Answer(socket);
  }
  std::string Get(const std::string& path, const std::string& host = "localhost") const {
    return Ask("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
  }

  std::atomic<bool> ready_{true};
  std::unique_ptr<Http> http_;
};

TEST_F(HttpTest, IsAskedForByNamesThatAreItsOwn) {
  for (const char* const own : {"localhost", "LOCALHOST:9464", "a.localhost", "127.0.0.1", "127.0.0.1:80", "[::1]:9464",
                                "10.1.2.3", "gpu7.example.org", "GPU7.example.org.:9464"}) {
    EXPECT_THAT(Get("/metrics", own), StartsWith("HTTP/1.1 200")) << own;
  }
  for (const char* const other :
       {"evil", "evil:9464", "localhost.evil", "xlocalhost", "127.0.0.1.evil", "gpu7", "[evil]", "[", ""}) {
    const std::string answer = Get("/metrics", other);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 421")) << other;
    EXPECT_THAT(answer, HasSubstr("http.hosts"));
    EXPECT_THAT(answer, Not(HasSubstr("a_metric")));
  }
}

TEST_F(HttpTest, ServesItsFourPages) {
  EXPECT_THAT(Get("/metrics"), HasSubstr("version=0.0.4"));
  EXPECT_THAT(Get("/metrics?x=1"), HasSubstr("a_metric 1\n"));
  EXPECT_THAT(Get("/"), HasSubstr("<html>"));
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/readyz"), StartsWith("HTTP/1.1 200"));
  ready_ = false;
  EXPECT_THAT(Get("/readyz"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/metrics/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("/../etc/passwd"), StartsWith("HTTP/1.1 404"));
}

// A client that keeps the connection would take an unexpected body for the next answer.
TEST_F(HttpTest, AHeadHasTheHeadersOfAGetAndNoBody) {
  const std::string both =
      Ask("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
          "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(both, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(both, Not(HasSubstr("a_metric")));
  EXPECT_THAT(both, HasSubstr("Content-Length: 11\r\n"));
  EXPECT_THAT(both, HasSubstr("\r\n\r\nHTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(both, EndsWith("\r\n\r\nok\n"));
}

TEST_F(HttpTest, ChangesNothingAndReadsNoBodies) {
  EXPECT_THAT(Ask("DELETE / HTTP/1.1\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 501"));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nX: " + std::string(10000, 'x') + "\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Ask("\r\n\r\n\r\n"), Not(HasSubstr("a_metric")));
  EXPECT_THAT(Get("/metrics"), HasSubstr("a_metric"));
}

TEST_F(HttpTest, WhoSaysNothingKeepsNobodyWaiting) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(Connect());
  EXPECT_THAT(Get("/metrics"), HasSubstr("a_metric"));
}

// Returns whether the server has closed the connection.
bool IsClosed(const UniqueFd& socket) {
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

class LimitedHttpTest : public HttpTest {
 protected:
  void Serve(const Limits& limits) {
    auto opened = Http::Open("127.0.0.1:0", {[] { return std::string("a_metric 1\n"); }, {}, {}, {}}, limits);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    http_ = *std::move(opened);
  }
};

TEST_F(LimitedHttpTest, TheOldestConnectionMakesRoomForANewOne) {
  Limits limits;
  limits.http_connections_per_address = 3;
  Serve(limits);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(Connect());
  EXPECT_THAT(Get("/metrics"), HasSubstr("a_metric"));
  EXPECT_EQ(Answer(silent[0]), "");  // it is closed
  EXPECT_FALSE(IsClosed(silent[2]));
}

TEST_F(LimitedHttpTest, ATotalOfConnectionsHoldsTooAndEndedOnesDoNotCount) {
  Limits limits;
  limits.http_connections = 3;
  Serve(limits);
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Get("/metrics"), HasSubstr("a_metric"));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(Connect());
  EXPECT_THAT(Get("/metrics"), HasSubstr("a_metric"));
  EXPECT_EQ(Answer(silent[0]), "");
  EXPECT_FALSE(IsClosed(silent[2]));
}

// A byte now and then kept a connection for as long as a client liked.
TEST_F(LimitedHttpTest, ARequestHasADeadlineThatItsBytesDoNotExtend) {
  Limits limits;
  limits.http_request_timeout = std::chrono::milliseconds(300);
  Serve(limits);
  const UniqueFd slow = Connect();
  int sent = 0;
  for (; sent < 1000 && !IsClosed(slow); ++sent) {
    ::send(slow.get(), "G", 1, MSG_NOSIGNAL);
    ::usleep(10'000);  // a byte every 10 ms
  }
  EXPECT_LT(sent, 1000);
}

TEST_F(LimitedHttpTest, EachRequestOfAConnectionHasItsOwnDeadline) {
  Limits limits;
  limits.http_request_timeout = std::chrono::milliseconds(3000);
  Serve(limits);
  const UniqueFd kept = Connect();
  for (int i = 0; i < 4; ++i) {
    ::usleep(900'000);  // together longer than the deadline
    const std::string request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    ASSERT_EQ(::send(kept.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    char part[4096];
    ASSERT_GT(::recv(kept.get(), part, sizeof part, 0), 0) << i;
  }
}

TEST_F(HttpTest, LeavesDescriptorsForTheOthers) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{200, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<UniqueFd> silent;
  // Each connection uses a descriptor here and, after it is accepted, another one of Http in the same process.
  for (int i = 0; i < 120; ++i) silent.push_back(Connect());
  ::usleep(100'000);  // long enough to accept all of them
  const UniqueFd probe(::dup(0));
  EXPECT_TRUE(probe.valid());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  silent.clear();
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpAddressTest, SaysWhatIsWrong) {
  for (const char* address : {"", "9464", "localhost:9464", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "::1:9464",
                              "[::1", "[127.0.0.1]:9464", "127.0.0.1:9464 "}) {
    const auto http = Http::Open(address, {});
    EXPECT_EQ(http.status().code(), Code::kInvalidArgument) << address;
    EXPECT_THAT(http.status().message(), HasSubstr(address));
  }
  EXPECT_EQ(Http::Open("192.0.2.1:9464", {}).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace arraybridge::daemon
