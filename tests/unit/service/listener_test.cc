#include "daemon/service/system/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
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

namespace arraybridge {
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
}  // namespace arraybridge
