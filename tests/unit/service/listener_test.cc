// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/system/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "tests/unit/service/lifeline_client.h"
#include "tests/unit/service/passed.h"

namespace arraybridge::daemon {
namespace {

using ::testing::HasSubstr;

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    std::string name = ::testing::TempDir() + "listenerXXXXXX";
    root_ = ::mkdtemp(name.data());
    config_ = In("broker");
  }
  ~ListenerTest() override { std::filesystem::remove_all(root_); }

  Config In(const std::string& name) const {
    Config config;
    config.directory = root_ + "/" + name;
    config.lifeline_path = config.directory + "/lifeline.sock";
    config.grpc_path = config.directory + "/broker.sock";
    return config;
  }
  static UniqueFd ConnectTo(const std::string& path, int type) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) socket.reset();
    return socket;
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat found {};
    EXPECT_EQ(::lstat(path.c_str(), &found), 0) << path;
    return found.st_mode & 0777;
  }

  std::string root_;
  Config config_;
};

TEST_F(ListenerTest, TellsWhoIsAtTheOtherEndOfEachDoor) {
  config_.admin_path = config_.directory + "/admin.sock";
  const auto listener = Listener::Open(config_);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  std::promise<Connection> lifeline, grpc, admin;
  (*listener)->Start([&](Connection c) { lifeline.set_value(std::move(c)); },
                     [&](Connection c) { grpc.set_value(std::move(c)); },
                     [&](Connection c) { admin.set_value(std::move(c)); });
  const UniqueFd first = ConnectTo(config_.lifeline_path, SOCK_SEQPACKET);
  const UniqueFd second = ConnectTo(config_.grpc_path, SOCK_STREAM);
  const UniqueFd third = ConnectTo(config_.admin_path, SOCK_STREAM);
  ASSERT_TRUE(first.valid() && second.valid() && third.valid());
  const Connection local = lifeline.get_future().get();
  EXPECT_EQ(local.peer.uid, ::getuid());
  EXPECT_EQ(local.peer.process_id, static_cast<uint64_t>(::getpid()));
  EXPECT_EQ(local.peer.door, Door::kLifeline);
  EXPECT_TRUE(local.peer.process->valid());
  EXPECT_EQ(grpc.get_future().get().peer.door, Door::kGrpc);
  const Connection administrator = admin.get_future().get();
  EXPECT_EQ(administrator.peer.door, Door::kAdmin);
  std::vector<gid_t> groups(static_cast<size_t>(::getgroups(0, nullptr)));
  ASSERT_EQ(::getgroups(static_cast<int>(groups.size()), groups.data()), static_cast<int>(groups.size()));
  EXPECT_EQ(administrator.peer.groups, std::vector<uint32_t>(groups.begin(), groups.end()));
}

TEST_F(ListenerTest, TheSecondDaemonOfADirectoryRefusesAndHarmsNothing) {
  const auto first = Listener::Open(config_);
  ASSERT_TRUE(first.ok());
  const auto second = Listener::Open(config_);
  ASSERT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("another arraybridged"));
  EXPECT_TRUE(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).valid());
}

TEST_F(ListenerTest, ALivingSocketOfAnotherDirectoryIsNotTakenAway) {
  const auto first = Listener::Open(config_);
  ASSERT_TRUE(first.ok());
  Config thief = In("other");
  thief.lifeline_path = config_.lifeline_path;
  const auto second = Listener::Open(thief);
  ASSERT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).valid());
}

TEST_F(ListenerTest, AStaleSocketIsReplaced) {
  std::filesystem::create_directory(config_.directory);
  for (const auto& [path, type] :
       {std::pair(config_.lifeline_path, SOCK_SEQPACKET), {config_.grpc_path, SOCK_STREAM}}) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const UniqueFd dead(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  const auto listener = Listener::Open(config_);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  EXPECT_TRUE(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).valid());
}

TEST_F(ListenerTest, AFileThatIsNoSocketIsNotRemoved) {
  std::filesystem::create_directory(config_.directory);
  std::ofstream(config_.lifeline_path) << "precious";
  EXPECT_EQ(Listener::Open(config_).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(config_.lifeline_path));
}

TEST_F(ListenerTest, RightsAreAsPromised) {
  {
    const auto listener = Listener::Open(config_);
    ASSERT_TRUE(listener.ok());
    EXPECT_EQ(ModeOf(config_.lifeline_path), 0660u);
    EXPECT_EQ(ModeOf(config_.grpc_path), 0660u);
    EXPECT_EQ(ModeOf(config_.directory + "/lock"), 0600u);
  }
  Config embedded = In("embedded");
  embedded.embedded = true;
  const auto listener = Listener::Open(embedded);
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(ModeOf(embedded.directory), 0700u);
  EXPECT_EQ(ModeOf(embedded.lifeline_path), 0600u);
}

TEST_F(ListenerTest, AnEmbeddedBrokerRefusesADirectoryThatOthersMayEnter) {
  config_.embedded = true;
  std::filesystem::create_directory(config_.directory);
  ASSERT_EQ(::chmod(config_.directory.c_str(), 0755), 0);
  EXPECT_THAT(Listener::Open(config_).status().message(), HasSubstr("0700"));
}

TEST_F(ListenerTest, ItsEndRemovesTheSocketsAndFreesTheDirectory) {
  { ASSERT_TRUE(Listener::Open(config_).ok()); }
  EXPECT_FALSE(std::filesystem::exists(config_.lifeline_path));
  EXPECT_FALSE(std::filesystem::exists(config_.grpc_path));
  EXPECT_TRUE(Listener::Open(config_).ok());
}

// The directory was removed under a daemon, and another daemon was started there.
TEST_F(ListenerTest, ItsEndLeavesTheSocketsOfAnother) {
  auto first = Listener::Open(config_);
  ASSERT_TRUE(first.ok());
  std::filesystem::remove_all(config_.directory);
  const auto second = Listener::Open(config_);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  first->reset();
  EXPECT_TRUE(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).valid());
  EXPECT_TRUE(ConnectTo(config_.grpc_path, SOCK_STREAM).valid());
}

// A store whose holder is this test.
class HeldHere final : public DescriptorStore {
 public:
  Status Store(std::span<const Entry> entries, Until = Until::kHandled) override {
    for (const Entry& each : entries) held.emplace_back(std::string(each.name), Aside(::dup(each.fd)));
    return Ok();
  }
  void Remove(std::string_view name) override {
    std::erase_if(held, [name](const auto& each) { return each.first == name; });
  }
  Usage usage() const override { return {}; }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, fd] : held) all.push_back(name);
    return all;
  }
  // As the next daemon receives them.
  PassedSockets PassedOn() const {
    std::vector<std::pair<std::string, int>> descriptors;
    for (const auto& [name, fd] : held) descriptors.emplace_back(name, fd.get());
    auto passed = Passed(descriptors);
    AB_CHECK(passed.ok());
    return *std::move(passed);
  }

  std::vector<std::pair<std::string, UniqueFd>> held;
};

// The first daemon of a directory has been killed: its files are left, and the store has its sockets.
class OutageTest : public ListenerTest {
 protected:
  OutageTest() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;  // for Aside
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto first = Listener::Open(config_, {}, &store_);
    AB_CHECK(first.ok());
    (*first)->LeaveFiles(true);
  }
  std::unique_ptr<Listener> Next(const Config& config) {
    PassedSockets passed = store_.PassedOn();
    auto next = Listener::Open(config, std::move(passed), &store_);
    EXPECT_TRUE(next.ok()) << next.status().ToString();
    return next.ok() ? *std::move(next) : nullptr;
  }

  HeldHere store_;
};

TEST_F(OutageTest, AClientThatConnectsMeanwhileIsServedByTheNextDaemon) {
  ASSERT_EQ(store_.held.size(), 2u);
  const auto names = store_.names();
  const UniqueFd early = Aside(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).release());
  ASSERT_TRUE(early.valid());
  const auto next = Next(config_);
  ASSERT_NE(next, nullptr);
  std::promise<Connection> accepted;
  next->Start([&](Connection c) { accepted.set_value(std::move(c)); }, [](Connection) {}, [](Connection) {});
  EXPECT_EQ(accepted.get_future().get().peer.process_id, static_cast<uint64_t>(::getpid()));
  EXPECT_EQ(store_.names(), names);
}

TEST_F(OutageTest, ADaemonThatEndsForGoodRemovesTheFilesOfItsSockets) {
  Next(config_)->LeaveFiles(false);
  EXPECT_FALSE(std::filesystem::exists(config_.lifeline_path));
  EXPECT_FALSE(std::filesystem::exists(config_.grpc_path));
}

TEST_F(OutageTest, ADaemonThatCannotStartLeavesTheFilesToTheNextOne) {
  Next(config_);  // ends before it says how
  EXPECT_TRUE(std::filesystem::exists(config_.lifeline_path));
}

TEST_F(OutageTest, ADeletedFileIsBoundAgain) {
  const std::string other_door = store_.names()[1];
  std::filesystem::remove(config_.lifeline_path);
  Next(config_)->LeaveFiles(true);
  EXPECT_TRUE(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).valid());  // it waits in the store's new socket
  ASSERT_EQ(store_.held.size(), 2u);
  EXPECT_THAT(store_.names(), ::testing::Contains(other_door));
}

TEST_F(OutageTest, AFileThatAnotherDeadDaemonLeftThereIsReplaced) {
  std::filesystem::remove(config_.lifeline_path);
  {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, config_.lifeline_path.data(), config_.lifeline_path.size());
    const UniqueFd dead(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  const auto next = Next(config_);
  EXPECT_TRUE(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).valid());
}

TEST_F(OutageTest, AnotherPathInTheConfigurationMovesTheSocket) {
  const std::string old = config_.lifeline_path;
  config_.lifeline_path += "2";
  const auto next = Next(config_);
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).valid());
  EXPECT_EQ(store_.held.size(), 2u);
}

TEST_F(OutageTest, ADoorThatIsOffIsNoLongerStored) {
  config_.grpc_path.clear();
  const auto next = Next(config_);
  EXPECT_FALSE(std::filesystem::exists(config_.directory + "/broker.sock"));
  EXPECT_EQ(store_.held.size(), 1u);
}

TEST_F(OutageTest, ASocketOverTcpLeavesTheStore) {
  UniqueFd socket = Aside(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback), 0);
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  store_.held.emplace_back("tcp.0.0", std::move(socket));
  ASSERT_NE(Next(config_), nullptr);
  EXPECT_EQ(store_.held.size(), 2u);
}

TEST_F(OutageTest, AnotherDaemonOfTheDirectoryDoesNotStart) {
  const auto other = Listener::Open(config_);
  ASSERT_EQ(other.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(other.status().message(), HasSubstr("already serves"));
}

TEST_F(ListenerTest, APathTheKernelCannotHoldIsNamed) {
  config_.lifeline_path = config_.directory + "/" + std::string(120, 'l');
  EXPECT_EQ(Listener::Open(config_).status().code(), Code::kInvalidArgument);
}

TEST_F(ListenerTest, WithoutDescriptorsAPeerIsToldSoAndLaterOnesAreServed) {
  const auto listener = Listener::Open(config_);
  ASSERT_TRUE(listener.ok());
  std::promise<void> accepted;
  (*listener)->Start([&](Connection) { accepted.set_value(); }, [](Connection) {}, [](Connection) {});
  LifelineClient refused(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, config_.lifeline_path.data(), config_.lifeline_path.size());
  const int lowest_free = ::dup(0);
  ::close(lowest_free);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(lowest_free);  // every lower number is taken
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const int connected = ::connect(refused.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const auto told = refused.Receive();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(connected, 0);
  EXPECT_EQ(told.code(), Code::kResourceExhausted);
  EXPECT_TRUE(refused.Receive().closed);
  EXPECT_TRUE(ConnectTo(config_.lifeline_path, SOCK_SEQPACKET).valid());
  accepted.get_future().get();
}

}  // namespace
}  // namespace arraybridge::daemon
