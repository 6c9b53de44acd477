// SPDX-License-Identifier: Apache-2.0
// arraybridged reads its configuration, builds the parts in order, and runs until a signal, an administrator or the
// parent process ends it. The parts are destroyed in the reverse order.
#include <google/protobuf/stubs/logging.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/config/devices.h"
#include "daemon/config/load.h"
#include "daemon/config/print.h"
#include "daemon/force_exit_on_signal.h"
#include "daemon/gpus.h"
#include "daemon/http_pages.h"
#include "daemon/inherited_fds.h"
#include "daemon/keeper/keeper.h"
#include "daemon/main_thread_queue.h"
#include "daemon/manager_status.h"
#include "daemon/memory/host/host_backend.h"
#include "daemon/memory/host/warm_backend.h"
#include "daemon/reloader.h"
#include "daemon/revision.h"
#include "daemon/service/grpc/grpc_door.h"
#include "daemon/service/grpc/grpc_door_admin.h"
#include "daemon/service/grpc/grpc_log.h"
#include "daemon/service/http/metrics.h"
#include "daemon/service/lifeline/local_door.h"
#include "daemon/service/reclaim/worker.h"
#include "daemon/service/system/listener.h"
#include "daemon/service/system/manager_store.h"
#include "daemon/service/system/notify.h"
#include "daemon/service/system/passed_sockets.h"
#include "daemon/service/system/watchdog.h"
#include "daemon/service/telemetry/log.h"
#include "daemon/service/verbs/admin.h"
#include "daemon/service/verbs/verbs.h"
#include "daemon/startup_check.h"
#include "daemon/take_over.h"
#include "proto/boundary/standard_descriptors.h"

namespace arraybridge::daemon {
namespace {

constexpr int kExitUsage = 2;
constexpr std::chrono::milliseconds kLastAnswer{1000};  // time for the answer to the administrator who ended the daemon
constexpr std::chrono::milliseconds kIdleLookMin{10};
constexpr std::chrono::milliseconds kIdleLookMax{1000};

// Signals are blocked before any thread starts, so that only the descriptor receives them.
UniqueFd TakeSignals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGHUP);
  sigaddset(&ends, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return UniqueFd(::signalfd(-1, &ends, SFD_CLOEXEC));
}

void RaiseLimit(decltype(RLIMIT_NOFILE) of) {
  rlimit limit{};
  if (::getrlimit(of, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(of, &limit);
}

void SayReady(const Config& config, ManagerStatus& status) {
  status.SayReady();
  // The daemon continues if the process that started it has ended, because other clients may come.
  if (!WriteReadyLine(config)) log::Warn("the reader of the ready line has gone");
}

// Keeps warm blocks ready. Its thread has the least priority, and refills only after a pause in allocations, because a
// client that has just received a block is copying into it. Several wishes cause one refill. With a successor the
// thread does not run in the idle class. A killed process ends only when its last thread leaves its system call, and a
// thread of that class may wait for the processor without end.
class Refiller {
 public:
  Refiller(WarmBackend& warm, bool has_successor) : warm_(warm), worker_("ab-refill") {
    worker_.Post([has_successor] { RunWhenIdle(has_successor); });
    // Not in the first moments of a daemon that follows a killed one: its clients are waiting.
    worker_.PostAt(Clock::now() + (has_successor ? kSettled : Clock::duration(0)), [this] { warm_.Refill(); });
  }

  void Wish() {
    last_wish_.store(Clock::now());
    if (!planned_.exchange(true)) worker_.PostAt(Clock::now() + kQuiet, [this] { RefillWhenQuiet(); });
  }

 private:
  static constexpr std::chrono::milliseconds kQuiet{100};
  static constexpr std::chrono::seconds kSettled{2};

  static void RunWhenIdle(bool has_successor) {
    const sched_param none{};
    if (!has_successor && ::sched_setscheduler(0, SCHED_IDLE, &none) == 0) return;
    constexpr int kLeastPriority = 19;
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLeastPriority);
  }

  void RefillWhenQuiet() {
    planned_.store(false);  // before the refill: a later wish plans the next one
    const auto quiet_from = last_wish_.load() + kQuiet;
    if (quiet_from <= Clock::now()) {
      warm_.Refill();
      return;
    }
    if (!planned_.exchange(true)) worker_.PostAt(quiet_from, [this] { RefillWhenQuiet(); });
  }

  WarmBackend& warm_;
  std::atomic<Clock::time_point> last_wish_{Clock::time_point{}};
  std::atomic<bool> planned_{false};
  Worker worker_;  // last: its tasks use all of the above
};

// Waits for the end of the daemon and returns the reason. Meanwhile it reloads on SIGHUP, and notices the end of the
// keeper: the daemon then serves on, because its memory and its clients are still there.
class Ending {
 public:
  // `store`: null if no process keeps descriptors.
  Ending(const Config& config, const Broker& broker, ManagerStatus& status, Reloader& reloader,
         MainThreadQueue& main_thread, ManagerStore* store, UniqueFd signals)
      : config_(config),
        broker_(broker),
        status_(status),
        reloader_(reloader),
        main_thread_(main_thread),
        store_(store),
        keeper_(store == nullptr ? -1 : store->keeper()),
        signals_(std::move(signals)),
        life_(config.life_fd),
        in_use_(Clock::now()) {}

  // Returns the reason for the end.
  std::string_view Wait() {
    while (true) {
      std::array<pollfd, 4> polled{{{signals_.get(), POLLIN, 0},
                                    {life_.get(), POLLIN, 0},
                                    {main_thread_.descriptor(), POLLIN, 0},
                                    {keeper_, POLLIN, 0}}};
      ::poll(polled.data(), polled.size(), LookEveryMs());
      if (polled[3].revents != 0) KeeperEnded();
      if (polled[0].revents != 0 && EndSignalCame()) return starts_anew_ ? "asked to be started anew" : "signal";
      if (polled[1].revents != 0 && LifeEnded()) return "the starting process has ended";
      if (polled[2].revents != 0) main_thread_.Run();
      if (ended_by_request_)
        return starts_anew_ ? "upgrade requested by an administrator" : "requested by an administrator";
      if (Idle()) return "idle";
      status_.NotifyIfChanged();
    }
  }
  // The main thread calls this from its queue. `now`: does not wait for running calls.
  void End(bool now) {
    ended_by_request_ = true;
    patient_ = patient_ && !now;
  }
  // The same, for the next daemon to continue. FAILED_PRECONDITION, NO_HOLDER: nothing has changed.
  Status Upgrade() {
    Status possible = StartAnew();
    ended_by_request_ = ended_by_request_ || possible.ok();
    return possible;
  }
  bool ended_by_request() const { return ended_by_request_; }
  bool patient() const { return patient_; }
  bool starter_has_ended() const { return starter_has_ended_; }
  int exit_status() const { return starts_anew_ ? ManagerStore::kExitStartAnew : EXIT_SUCCESS; }

 private:
  Status StartAnew() {
    if (store_ == nullptr) {
      return FailedPrecondition(
                 "no process keeps what this daemon holds and starts the next one: start it with --keeper, "
                 "or as a service with FileDescriptorStoreMax= and FDSTORE=; until then, restart it")
          .Because("NO_HOLDER");
    }
    if (!store_->KeepsAfter(ManagerStore::kExitStartAnew)) {
      return FailedPrecondition(
                 "the keeper has ended, so no process would start the next daemon, and what this one holds "
                 "would be lost")
          .Because("NO_HOLDER");
    }
    starts_anew_ = true;
    return Ok();
  }

  int LookEveryMs() const {
    const int status = status_.wanted() ? static_cast<int>(ManagerStatus::kEvery.count()) : -1;
    if (config_.exit_when_idle.count() == 0) return status;
    return static_cast<int>(std::clamp(config_.exit_when_idle / 10, kIdleLookMin, kIdleLookMax).count());
  }

  // Reads the signal: a pending one would end the process as soon as signals are unblocked.
  bool EndSignalCame() {
    signalfd_siginfo taken{};
    if (::read(signals_.get(), &taken, sizeof taken) != sizeof taken) return false;
    if (taken.ssi_signo == SIGUSR2) return StartAnewSignalCame();
    if (taken.ssi_signo != SIGHUP) return true;
    static_cast<void>(reloader_.Reload());  // Reload has reported the result
    return false;
  }

  bool StartAnewSignalCame() {
    const Status possible = StartAnew();
    if (!possible.ok()) log::Warn("SIGUSR2 is ignored: {}", possible.message());
    return possible.ok();
  }

  void KeeperEnded() {
    keeper_ = -1;
    store_->KeeperEnded();
    log::Error("the keeper has ended: this daemon serves on, but if it ends, everything that it holds is lost");
  }

  bool LifeEnded() {
    char byte = 0;
    starter_has_ended_ = ::read(life_.get(), &byte, 1) <= 0;
    return starter_has_ended_;
  }

  bool Idle() {
    if (config_.exit_when_idle.count() == 0) return false;
    const Snapshot now = broker_.TakeSnapshot();
    // A session that came and went since the last check counts, and so does the end of the last session.
    if (now.sessions > 0 || sessions_ > 0 || now.sessions_total != sessions_total_) in_use_ = Clock::now();
    sessions_ = now.sessions;
    sessions_total_ = now.sessions_total;
    // Their makers have said until when they are wanted.
    if (now.expiring_shares > 0) return false;
    // A consumer may still be importing its framework.
    const auto patience =
        now.unread_shares > 0 ? std::max(config_.exit_when_idle, config_.linger) : config_.exit_when_idle;
    return Clock::now() - in_use_ >= patience;
  }

  const Config& config_;
  const Broker& broker_;
  ManagerStatus& status_;
  Reloader& reloader_;
  MainThreadQueue& main_thread_;
  ManagerStore* const store_;
  int keeper_;  // the store's; -1 if there is none or it has ended
  UniqueFd signals_;
  UniqueFd life_;
  Clock::time_point in_use_;
  uint64_t sessions_ = 0;
  uint64_t sessions_total_ = 0;
  bool ended_by_request_ = false;
  bool patient_ = true;
  bool starts_anew_ = false;
  bool starter_has_ended_ = false;
};

// Each GPU is a health service of its own, so that the loss of one does not affect the others.
class HealthOfGpus {
 public:
  HealthOfGpus(const Gpus& gpus, GrpcDoor& door) : gpus_(gpus.all) {
    for (const auto& broken : gpus.broken) door.SetServing(ServiceOf(broken.device), false);
    for (const auto& gpu : gpus_) {
      const std::string service = ServiceOf(gpu->device());
      door.SetServing(service, true);
      gpu->WhenLost([&door, service, uuid = gpu->device().uuid] {
        log::Error({log::Topic::kDeviceLost, {{"device", uuid}}},
                   "{} is out of service: a CUDA call failed permanently", uuid);
        door.SetServing(service, false);
      });
    }
  }
  // The door is destroyed before the GPUs.
  ~HealthOfGpus() {
    for (const auto& gpu : gpus_) gpu->WhenLost(nullptr);
  }
  HealthOfGpus(const HealthOfGpus&) = delete;
  HealthOfGpus& operator=(const HealthOfGpus&) = delete;

 private:
  // Uses the ordinal if the driver did not report a UUID.
  static std::string ServiceOf(const Device& gpu) {
    return Concat("arraybridge.v1.Broker/", gpu.uuid.empty() ? Concat("cuda:", gpu.id) : gpu.uuid);
  }

  const std::vector<std::shared_ptr<CudaGpu>>& gpus_;
};

// At exit, after the doors are closed: memory that a live process may have open is left to the driver.
class LeftToTheDriver {
 public:
  LeftToTheDriver(const Gpus& gpus, const Broker& broker) : gpus_(gpus), broker_(broker) {}
  ~LeftToTheDriver() {
    if (gpus_.all.empty() || !broker_.MayBeMappedElsewhere()) return;
    for (const auto& gpu : gpus_.all) gpu->LeaveToTheDriver();
  }
  LeftToTheDriver(const LeftToTheDriver&) = delete;
  LeftToTheDriver& operator=(const LeftToTheDriver&) = delete;

 private:
  const Gpus& gpus_;
  const Broker& broker_;
};

// Null without a service manager's watchdog. Checks the threads that clients need: the accepting thread, and the
// lifelines' thread with the broker's lock. Threads that allocate and seal may take longer than the watchdog allows and
// are not checked.
std::unique_ptr<Watchdog> StartWatchdog(const Broker& broker, Listener& listener, LocalDoor& local_door,
                                        Metrics& metrics) {
  const auto patience = Watchdog::Wanted();
  if (!patience) return nullptr;
  const auto accepting = [&listener](std::function<void()> task) { listener.Post(std::move(task)); };
  const auto serving = [&broker, &local_door](std::function<void()> task) {
    local_door.Post([&broker, task = std::move(task)] {
      broker.TakeSnapshot();
      task();
    });
  };
  return std::make_unique<Watchdog>(*patience, std::vector<Watchdog::Loop>{accepting, serving}, [&metrics] {
    NotifyManager("WATCHDOG=1");
    metrics.CountWatchdogPing();
  });
}

// A reload changes `request`.
int Serve(ConfigRequest& request, int argc, const char* const* argv, UniqueFd signals) {
  const Config& config = request.config;
  auto passed = PassedSockets::FromEnvironment();
  if (!passed.ok()) {
    log::Error(log::Topic::kCannotStart, "cannot start: {}", passed.status().message());
    return EXIT_FAILURE;
  }
  const auto store = ManagerStore::FromEnvironment(passed->names());
  std::vector<StoredDescriptor> stored = passed->TakeStored();
  HttpSockets http_sockets = HttpSockets::TakeFrom(*passed);
  auto listener = Listener::Open(config, *std::move(passed), store.get());
  if (!listener.ok()) {
    log::Error(log::Topic::kCannotStart, "cannot start: {}", listener.status().message());
    return EXIT_FAILURE;
  }
  const auto host = MakeHostBackend({config.host_capacity_bytes, config.huge_pages});
  const bool serves_host = ServesHostMemory(config);
  WarmBackend warm(*host, {serves_host ? config.host_cache_bytes : 0, serves_host && !config.embedded});
  Refiller refiller(warm, store != nullptr);
  const auto found = FindGpus(config);
  if (!found.ok()) {
    log::Error(log::Topic::kCannotStart, "cannot start: {}", found.status().message());
    return EXIT_FAILURE;
  }
  const Gpus& gpus = *found;
  const auto of_gpus = BackendsOf(gpus, config.gpus);
  std::vector<MemoryBackend*> backends;
  if (serves_host) backends.push_back(&warm);
  for (const auto& backend : of_gpus) backends.push_back(backend.get());
  Broker broker(config, std::move(backends));
  auto taken = TakeOver(broker, store.get(), std::move(stored));
  if (!taken.ok()) {
    log::Error(log::Topic::kCannotStart, "cannot start: {}", taken.status().message());
    return EXIT_FAILURE;
  }
  // A store without room for the journal is only reported: the next daemon will not continue this one.
  ManagerStore* const successor = broker.is_stored() ? store.get() : nullptr;
  Verbs verbs(
      config, broker, [&refiller] { refiller.Wish(); }, {gpus.why_none, gpus.why_none_cause},
      LifeOf(taken->recovered, store.get(), broker.is_stored()));
  const LeftToTheDriver left_to_the_driver(gpus, broker);
  LocalDoor local_door(config, verbs);
  GrpcDoor grpc_door(config, broker, verbs);
  const HealthOfGpus health(gpus, grpc_door);
  Metrics metrics(config, broker, verbs, {kRevision, gpus.driver()});
  const auto http = OpenHttp(std::move(http_sockets), store.get(), config, broker, verbs, metrics);
  if (!http.ok()) {
    log::Error(log::Topic::kCannotStart, "cannot start: {}", http.status().message());
    if (taken->recovered.life > 1) ::_exit(EXIT_FAILURE);  // the store keeps what was taken over
    return EXIT_FAILURE;
  }
  MainThreadQueue main_thread;  // tasks of administrators; closed before the objects that they use are destroyed
  ManagerStatus status(broker, verbs);
  std::optional<Reloader> reloader;
  std::optional<Ending> ending;
  Admin admin(
      config, broker, verbs,
      {[&](auto reply) { main_thread.Post([&reloader, reply] { reply(reloader->Reload()); }); },
       [&](auto reply) { main_thread.Post([&request, reply] { reply(ValuesOf(request.config, request.given)); }); },
       [&] {
         verbs.Drain();
         grpc_door.SayDraining();
       },
       [&](bool now) { main_thread.Post([&ending, now] { ending->End(now); }); },
       [&](auto reply) { main_thread.Post([&ending, reply] { reply(ending->Upgrade()); }); }});
  reloader.emplace(argc, argv, request, verbs, admin, metrics, status);
  ending.emplace(config, broker, status, *reloader, main_thread, successor, std::move(signals));
  AdminDoor admin_door(config, admin);
  for (const auto& direct : taken->recovered.revoking) verbs.channels.EndDirectChannel(direct);
  for (const SessionId session : taken->recovered.gone) verbs.sessions.EndSession(session, EndCause::kKilled);
  for (auto& [session, connection] : taken->lifelines) local_door.Resume(std::move(connection), session);
  if (taken->recovered.life > 1) verbs.sessions.GoOn(taken->recovered.awaited);

  (*listener)->Start([&](Connection connection) { local_door.Adopt(std::move(connection)); },
                     [&](Connection connection) { grpc_door.Adopt(std::move(connection.socket), connection.peer); },
                     [&](Connection connection) { admin_door.Adopt(std::move(connection.socket), connection.peer); });
  if (serves_host) {
    log::Info({log::Topic::kServing, {{"device", "cpu"}, {"bytes", std::to_string(config.host_capacity_bytes)}}},
              "serving {} bytes of host memory", config.host_capacity_bytes);
  }
  for (const auto& gpu : gpus.all) {
    const uint64_t bytes = gpu->capacity()->bytes();
    log::Info({log::Topic::kServing, {{"device", gpu->device().uuid}, {"bytes", std::to_string(bytes)}}},
              "serving {} bytes of {}", bytes, gpu->device().uuid);
  }
  const auto watchdog = StartWatchdog(broker, **listener, local_door, metrics);
  SayReady(config, status);

  const std::string_view reason = ending->Wait();
  if (successor != nullptr && successor->KeepsAfter(ending->exit_status())) {
    // The next daemon goes on from here, as after a crash: nothing is closed or given back.
    log::Info({log::Topic::kDraining, {{"reason", std::string(reason)}}}, "ending for the next daemon: {}", reason);
    if (ending->ended_by_request()) admin_door.Drain(Clock::now() + kLastAnswer);
    ::_exit(ending->exit_status());
  }
  main_thread.Close();
  log::Info({log::Topic::kDraining, {{"reason", std::string(reason)}}}, "draining: {}", reason);
  const int exit_status = ending->exit_status();
  // STOPPING would tell the manager that no READY follows.
  const std::string_view stopping = exit_status == EXIT_SUCCESS ? "STOPPING=1\n" : "";
  NotifyManager(Concat(stopping, "STATUS=draining: ", reason));
  const ForceExitOnSignal force_exit;
  const auto deadline = Clock::now() + (ending->patient() ? config.drain_timeout : std::chrono::milliseconds(0));
  broker.Stop();
  verbs.Drain();
  (*listener)->Stop();
  grpc_door.Drain(deadline);
  verbs.WaitIdle(deadline);
  admin_door.Drain(Clock::now() + kLastAnswer);
  (*listener)->LeaveFiles(false);
  if (config.embedded && ending->starter_has_ended()) (*listener)->RemoveDirectory();
  return exit_status;
}

int Main(int argc, const char* const* argv) {
  FillStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);             // an arena is a file: one above the size limit must be refused
  google::protobuf::SetLogHandler(nullptr);  // it would print data of hostile clients
  auto request = LoadConfig(argc, argv);
  if (!request.ok()) {
    for (const std::string& error : AllErrors(request.status())) {
      std::fprintf(stderr, "arraybridged: %s\n", error.c_str());
    }
    return kExitUsage;
  }
  if (!request->output.empty()) {
    std::fputs(request->output.c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (const Status passed = CheckInheritedFds(request->config); !passed.ok()) {
    std::fprintf(stderr, "arraybridged: %s\n", passed.message().c_str());
    return kExitUsage;
  }
  if (const Status started = log::Start(request->config.log_level, request->config.log_format, request->config.journal);
      !started.ok()) {
    std::fprintf(stderr, "arraybridged: %s\n", started.message().c_str());
    return kExitUsage;
  }
  log::SetLinesPerSecond(request->config.log_lines_per_second);
  if (request->check_only) return std::puts("valid") < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
  TakeGrpcLog();
  RaiseLimit(RLIMIT_NOFILE);
  RaiseLimit(RLIMIT_FSIZE);
  UniqueFd signals = TakeSignals();
  if (const Status room = CheckStartup(); !room.ok()) {
    log::Error(log::Topic::kCannotStart, "cannot start: {}", room.message());
    return EXIT_FAILURE;
  }
  return Serve(*request, argc, argv, std::move(signals));
}

}  // namespace
}  // namespace arraybridge::daemon

int main(int argc, char** argv) {
  if (arraybridge::daemon::AsksForKeeper(argc, argv)) return arraybridge::daemon::RunKeeper(argc, argv);
  return arraybridge::daemon::Main(argc, argv);
}
