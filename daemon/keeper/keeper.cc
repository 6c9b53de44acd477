// SPDX-License-Identifier: Apache-2.0
#include "daemon/keeper/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "daemon/keeper/child.h"
#include "daemon/keeper/closing.h"
#include "daemon/keeper/held_descriptors.h"
#include "daemon/keeper/notice.h"
#include "daemon/keeper/restart_policy.h"
#include "daemon/service/system/notify.h"
#include "proto/boundary/standard_descriptors.h"
#include "proto/boundary/unique_fd.h"

namespace arraybridge::daemon {
namespace {

using Clock = std::chrono::steady_clock;
using Time = RestartPolicy::Time;

constexpr int kExitStartAnew = 75;  // ManagerStore::kExitStartAnew
constexpr unsigned long kEntriesMax = 8000;
constexpr unsigned long kDescriptorsKept = 512;  // for the keeper itself, and for one datagram in arrival
constexpr int kNoticesAtOnce = 1024;             // a queue that others fill does not keep the keeper from its signals
constexpr Time kShortLife{500};                  // one that is killed once a second is no crash loop
constexpr Time kFirstDelay{100};
constexpr Time kStart{5'000};  // a signal does not wait longer for a daemon that starts
// The values that epoll reports with an event, besides the ids of entries, which begin at 1.
enum Source : uint64_t { kSignals = ~0ull, kNotices = kSignals - 1, kLife = kSignals - 2 };

constexpr std::array kForwarded{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// One line on standard error. Is dropped rather than waiting for a reader that is stuck.
[[gnu::format(printf, 1, 2)]] void Say(const char* format, ...) {
  std::array<char, 512> line;
  const int prefix = std::snprintf(line.data(), line.size(), "arraybridged --keeper: ");
  va_list values;
  va_start(values, format);
  std::vsnprintf(line.data() + prefix, line.size() - static_cast<size_t>(prefix) - 1, format, values);
  va_end(values);
  const size_t size = std::strlen(line.data());
  line[size] = '\n';
  pollfd reader{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&reader, 1, 0) == 1) static_cast<void>(!::write(STDERR_FILENO, line.data(), size + 1));
}

sigset_t KeeperSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int each : kForwarded) sigaddset(&signals, each);
  return signals;
}

Time TimeFrom(const char* variable, Time fallback) {
  const auto value = NumberFromManager(variable);
  return value && *value >= 0 ? Time(*value) : fallback;
}

// The number of entries that the table and the limit of descriptors allow. A new process has each descriptor twice for
// a moment.
unsigned long EntriesMax() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kEntriesMax;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 2 * kDescriptorsKept) return 0;
  return std::min<unsigned long>(kEntriesMax, (limit.rlim_cur - kDescriptorsKept) / 2);
}

class Keeper {
 public:
  Keeper(int argc, char** argv, const sigset_t& daemon_mask);

  // Returns the exit status of the process.
  int Run();

 private:
  bool TakePassed();
  bool MakeNotices();
  void Watch(int fd, uint64_t source) const;
  int MsUntilStart() const;
  void Start();
  void OnEvent(uint64_t source);
  void OnSignal();
  void Forward(int number);
  void SendWaiting();
  void OnNotices();
  void OnNotice();
  void Hold();
  void CloseNoticed();
  void Reap();
  void OnDeath(int status);
  void OnCrash(const char* how, int number);
  void End(int exit_status) { exit_status_ = exit_status; }

  const UniqueFd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  const sigset_t signal_set_ = KeeperSignals();
  const UniqueFd signals_{::signalfd(-1, &signal_set_, SFD_CLOEXEC | SFD_NONBLOCK)};
  const unsigned long entries_max_ = EntriesMax();
  UniqueFd notices_;
  UniqueFd daemons_end_;  // what is sent here comes to `notices_`
  Closing closing_;
  HeldDescriptors held_{epoll_.get(), closing_};
  Notice notice_;
  Child child_;
  RestartPolicy policy_{TimeFrom("KEEPER_SHORT_LIFE_MS", kShortLife), TimeFrom("KEEPER_DELAY_MS", kFirstDelay)};
  pid_t daemon_ = 0;                                          // 0: none runs
  Clock::time_point started_{};                               // of the last daemon
  std::optional<Clock::time_point> start_at_ = Clock::now();  // of the next daemon; nullopt: none is to be started
  std::array<char, 32> last_end_{};                           // why the last daemon ended
  bool is_ready_ = false;                                     // the daemon that runs is
  bool was_ready_ = false;                                    // some daemon was
  sigset_t waiting_{};                                        // signals for the daemon as soon as it is ready
  bool is_stopping_ = false;                                  // SIGTERM or SIGINT came
  bool reported_foreign_ = false;
  std::optional<int> exit_status_;
};

Keeper::Keeper(int argc, char** argv, const sigset_t& daemon_mask) : child_(argc, argv, daemon_mask) {}

int Keeper::Run() {
  if (!epoll_.valid() || !signals_.valid() || !MakeNotices() || !TakePassed()) {
    Say("cannot start: no descriptor is left, or a passed socket has a name of more than 31 bytes");
    return EXIT_FAILURE;
  }
  if (entries_max_ < kEntriesMax)
    Say("the limit of open files (RLIMIT_NOFILE) leaves room for %lu entries", entries_max_);
  Watch(signals_.get(), kSignals);
  Watch(notices_.get(), kNotices);
  while (!exit_status_) {
    if (daemon_ == 0 && start_at_ && *start_at_ <= Clock::now()) Start();
    if (daemon_ != 0 && Clock::now() >= started_ + kStart) SendWaiting();
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), MsUntilStart());
    for (int i = 0; i < count && !exit_status_; ++i) OnEvent(events[static_cast<size_t>(i)].data.u64);
    closing_.Start();
  }
  return *exit_status_;
}

// Takes the sockets that a service manager passed to this process, to pass them on to every daemon.
bool Keeper::TakePassed() {
  const auto meant_for = NumberFromManager("LISTEN_PID");
  const auto count = NumberFromManager("LISTEN_FDS");
  if (!meant_for || *meant_for != ::getpid() || !count) return true;
  const char* const named = std::getenv("LISTEN_FDNAMES");
  std::string_view names(named == nullptr ? "" : named);
  for (int fd = 3; fd < 3 + *count; ++fd) {
    const size_t colon = std::min(names.find(':'), names.size());
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (held_.Add(names.substr(0, colon), fd, false, true) != HeldDescriptors::Outcome::kHeld) return false;
    names.remove_prefix(std::min(colon + 1, names.size()));
  }
  return true;
}

// The socket has no name, so only the daemon, which inherits the other end, can send to it: a stranger could pass a
// descriptor whose close sleeps. A datagram of an earlier daemon may still arrive, so each carries its credentials.
bool Keeper::MakeNotices() {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair.data()) != 0) return false;
  notices_.reset(pair[0]);
  daemons_end_.reset(pair[1]);
  const int on = 1;
  return ::setsockopt(notices_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0;
}

void Keeper::Watch(int fd, uint64_t source) const {
  epoll_event readable{.events = EPOLLIN, .data = {}};
  readable.data.u64 = source;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &readable);
}

int Keeper::MsUntilStart() const {
  const bool waits = daemon_ != 0 && sigisemptyset(&waiting_) == 0;
  if (!waits && (daemon_ != 0 || !start_at_)) return -1;
  const auto left = std::chrono::ceil<Time>((waits ? started_ + kStart : *start_at_) - Clock::now()).count();
  return static_cast<int>(std::max<Time::rep>(left, 0));
}

void Keeper::Start() {
  started_ = Clock::now();
  is_ready_ = false;
  const pid_t started = child_.Start(held_, {daemons_end_.get(), entries_max_, last_end_.data()});
  if (started > 0) {
    daemon_ = started;
    return;
  }
  OnCrash("a process cannot be created, error", errno);
}

void Keeper::OnEvent(uint64_t source) {
  if (source == kSignals) return OnSignal();
  if (source == kNotices) return OnNotices();
  if (source == kLife) return End(EXIT_FAILURE);
  held_.RemoveHungUp(source);
}

void Keeper::OnSignal() {
  signalfd_siginfo taken{};
  while (::read(signals_.get(), &taken, sizeof taken) == sizeof taken) {
    const int number = static_cast<int>(taken.ssi_signo);
    if (number == SIGCHLD) {
      Reap();
      continue;
    }
    is_stopping_ |= number == SIGTERM || number == SIGINT;
    if (daemon_ != 0) {
      Forward(number);
    } else if (is_stopping_) {
      End(EXIT_SUCCESS);
    } else if (number == SIGHUP) {
      policy_.Forgive();
      start_at_ = Clock::now();
    }
  }
}

// A daemon that starts has no handlers yet, and would end without order. The second signal of a kind does not wait, and
// none waits for long: the start may be stuck.
void Keeper::Forward(int number) {
  const bool waits = !is_ready_ && sigismember(&waiting_, number) == 0;
  if (!waits) return static_cast<void>(::kill(daemon_, number));
  sigaddset(&waiting_, number);
  Say("signal %d waits until the daemon is ready, %lld s at most", number,
      static_cast<long long>(kStart.count() / 1000));
}

void Keeper::SendWaiting() {
  for (const int number : kForwarded) {
    if (sigismember(&waiting_, number) == 1) ::kill(daemon_, number);
  }
  sigemptyset(&waiting_);
}

void Keeper::OnNotices() {
  for (int i = 0; i < kNoticesAtOnce && notice_.Receive(notices_.get()); ++i) OnNotice();
}

void Keeper::OnNotice() {
  if (daemon_ == 0 || notice_.sender() != daemon_) {
    if (!reported_foreign_) Say("a datagram of process %d is ignored: it is not the daemon", notice_.sender());
    reported_foreign_ = true;
    return CloseNoticed();
  }
  if (notice_.is_cut()) {
    Say("a datagram of the daemon is ignored: it is too long or descriptors are missing");
    return CloseNoticed();
  }
  if (notice_.Has("BARRIER=1")) return;  // the next notice closes its descriptor, which is the answer
  if (notice_.Has("FDSTORE=1")) return Hold();
  if (notice_.Has("FDSTOREREMOVE=1")) return held_.Remove(notice_.ValueOf("FDNAME"));
  if (notice_.Has("READY=1")) {
    is_ready_ = true;
    SendWaiting();
    if (!was_ready_) child_.CloseReadyFd();
    was_ready_ = true;
  }
  NotifyManager(notice_.text());
}

// A client's socket may be among them.
void Keeper::CloseNoticed() {
  for (const int fd : notice_.descriptors()) closing_.CloseSocket(fd);
  notice_.Release();
}

void Keeper::Hold() {
  const std::string_view name = notice_.ValueOf("FDNAME");
  const bool drops_on_hangup = !notice_.Has("FDPOLL=0");
  for (const int fd : notice_.descriptors()) {
    const auto outcome = held_.Add(name, fd, drops_on_hangup);
    if (outcome == HeldDescriptors::Outcome::kBadName) {
      Say("a descriptor is not kept: its name is empty, has more than 31 bytes, or contains a colon or a space");
    }
    if (outcome == HeldDescriptors::Outcome::kFull) Say("a descriptor is not kept: %zu are", held_.entries().size());
  }
  notice_.Release();  // Add has taken or closed each
}

// Reaps every child that has ended: the first process of a container inherits the orphans. A datagram outlives its
// sender, so the daemon's are read before its process id can be given to another process.
void Keeper::Reap() {
  while (true) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    const bool is_daemon = ended.si_pid == daemon_;
    if (is_daemon) OnNotices();
    int status = 0;
    ::waitpid(ended.si_pid, &status, 0);
    if (is_daemon) {
      OnDeath(status);
    } else {
      closing_.Ended(ended.si_pid);
    }
  }
}

void Keeper::OnDeath(int status) {
  daemon_ = 0;
  if (!is_stopping_) sigemptyset(&waiting_);
  constexpr int kExitOfSignal = 128;  // as a shell reports it
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int code = WEXITSTATUS(status);
  std::snprintf(last_end_.data(), last_end_.size(), "%s %d", signal != 0 ? "signal" : "status",
                signal != 0 ? signal : code);
  if (is_stopping_) {
    const bool was_killed = signal != 0 && signal != SIGTERM && signal != SIGINT;
    if (was_killed) return End(kExitOfSignal + signal);
    return End(signal != 0 || code == kExitStartAnew ? EXIT_SUCCESS : code);
  }
  if (signal != 0) return OnCrash("the daemon was ended by signal", signal);
  if (code == kExitStartAnew) {
    std::snprintf(last_end_.data(), last_end_.size(), "asked to be started anew");
    start_at_ = Clock::now();
    return;
  }
  if (code == EXIT_SUCCESS || !was_ready_) return End(code);
  OnCrash("the daemon ended with status", code);
}

void Keeper::OnCrash(const char* how, int number) {
  const auto delay = policy_.DelayAfter(std::chrono::duration_cast<Time>(Clock::now() - started_));
  if (delay) {
    start_at_ = Clock::now() + *delay;
    return Say("%s %d; the next one starts in %lld ms with %zu descriptors", how, number,
               static_cast<long long>(delay->count()), held_.entries().size());
  }
  start_at_.reset();
  if (child_.life_fd() >= 0) Watch(child_.life_fd(), kLife);
  Say("%s %d. %d daemons in a row have ended within %lld ms, so no other is started. Their memory is kept. SIGHUP to "
      "process %d starts a daemon; SIGTERM ends the keeper and frees the memory",
      how, number, RestartPolicy::kShortLivesMax, static_cast<long long>(policy_.short_life().count()), ::getpid());
  NotifyManager("STATUS=the daemon ended too often and is not started again; SIGHUP starts it, its memory is kept");
}

}  // namespace

bool AsksForKeeper(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [](const char* each) { return std::string_view(each) == "--keeper"; });
}

int RunKeeper(int argc, char** argv) {
  FillStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t before;
  const sigset_t signals = KeeperSignals();
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  static Keeper keeper(argc, argv, before);  // static, because it is larger than a stack should be
  return keeper.Run();
}

}  // namespace arraybridge::daemon
