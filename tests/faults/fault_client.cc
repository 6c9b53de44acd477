// SPDX-License-Identifier: Apache-2.0
// A client of the broker that executes commands, one line at a time, so that a test can kill, stop, starve or fork
// it between any two steps. Every answer is one line: "ok ..." or "error CODE reason message".
//
//   put NAME BYTES SEED [replace] [sealed] [late] [marked] [lifetime MS]
//                                            place and publish words that depend on SEED and their index; late:
//                                            without waiting for the broker; marked: the metadata states SEED
//   tree NAME BYTES SEED COUNT               place and publish COUNT arrays as one share; the n-th has the words of
//                                            SEED + n
//   storm PREFIX BYTES SEED ROUNDS           put PREFIX/0, PREFIX/1 ... late; withdraw all but the newest few
//   scatter PREFIX MOST SEED ROUNDS EVERY    put arrays of 8 to MOST bytes, each magnitude equally often; withdraw each
//                                            256 rounds later, but not each EVERY-th; number and bytes of the rest
//   place BYTES                              place and keep, never publish
//   get NAME SEED [private] [wait MS]        acquire, check every word, keep
//   look NAME                                get a marked share: generation and seed
//   many SEED NAME...                        acquire several at once, check and keep
//   kinds                                    the kinds of handles of kept arrays
//   check                                    check every kept array again
//   scribble                                 write over every kept private array
//   drop                                     drop every kept array and placement
//   withdraw NAME | stats | mine | list PREFIX | flush
//   outcome MS                               the outcome of the last failed command: "done NAME GENERATION", or
//                                            "not done CODE REASON"; waits up to MS
//   open NAME send|receive                   open an end of a channel
//   send NAME BYTES SEED MS                  into a channel; waits up to MS for room
//   send_held NAME SEED                      copies of what `place` made last into a channel
//   receive NAME MS                          from a channel; waits up to MS: sequence, stream and seed
//   close NAME send|receive                  close an end in order
//   churn SEED NAMES ROUNDS                  get and drop "churn/<random below NAMES>"
//   open_end NAME ROLE MODE CAPACITY         opens an end (sender, receiver) of a channel (queue, broadcast, latest)
//   stream MS BYTES SEED                     sends for MS milliseconds, the n-th array with the words of SEED + n, and
//                                            closes: the number of arrays. PeerGone of receivers is not an error
//   receive_some COUNT SEED [gaps]           receives COUNT arrays, or until the stream ends (COUNT 0): the number of
//                                            arrays, the first and last sequence; checks every word, and that none is
//                                            missing without gaps
//   send_some COUNT BYTES SEED               sends COUNT arrays like these
//   visit NAME MS                            opens and closes a sending end again and again for MS milliseconds
//   close_end                                closes the end
//   fork                                     starts a child that inherits everything and waits for a signal
//   fork_get NAME SEED                       starts a child that gets NAME on its own connection, drops the others
//
// With $FAULT_CLIENT_BY_CALLS nothing travels in direct channels. With $FAULT_CLIENT_GPU, the path of a CUDA driver,
// all arrays are on its first GPU.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <arraybridge/broker.h>

#include "tests/faults/channel_ends.h"
#include "tests/faults/words.h"

namespace arraybridge {
namespace {

class FaultClient {
 public:
  // `gpu`: holds the arrays instead of host memory.
  FaultClient(Broker broker, std::optional<Device> gpu) : broker_(std::move(broker)), gpu_(std::move(gpu)) {}

  // Executes a command; returns the answer's text after "ok".
  Result<std::string> Do(std::istringstream& words) {
    std::string verb;
    words >> verb;
    const auto found = verbs_.find(verb);
    if (found == verbs_.end()) return InvalidArgument("no such command: ", verb);
    auto answer = found->second(words);
    if (!answer.ok() && verb != "outcome") failed_ = answer.status();
    return answer;
  }

 private:
  using Verb = std::function<Result<std::string>(std::istringstream&)>;
  struct Kept {
    Acquired acquired;
    uint64_t seed;
    bool written = false;
  };

  Result<Placement> PlaceWords(uint64_t bytes, uint64_t seed, bool own, size_t count = 1) {
    const std::vector<ArraySpec> specs(count, {{1, 64, 1}, "uint64", {static_cast<int64_t>(bytes / 8)}, {}, 0});
    if (gpu_.has_value()) return CopyWords(specs, seed, own);
    auto placed = broker_.Empty(specs, own);
    if (!placed.ok()) return placed;
    for (const View& view : placed->views()) FillWords(view, seed++);
    return placed;
  }

  Result<Placement> CopyWords(const std::vector<ArraySpec>& specs, uint64_t seed, bool own) {
    std::vector<std::vector<uint64_t>> words;
    std::vector<View> views;
    for (const ArraySpec& spec : specs) {
      words.emplace_back(static_cast<size_t>(spec.shape[0]));
      auto view = Describe(words.back().data(), spec.type, spec.shape, {}, {}, true, nullptr);
      if (!view.ok()) return view.status();
      view->dtype = spec.dtype;
      FillWords(*view, seed++);
      views.push_back(*std::move(view));
    }
    return broker_.Place(views, own, *gpu_);
  }

  Result<std::string> Put(std::istringstream& words) {
    std::string name, flag;
    uint64_t bytes = 0, seed = 0;
    words >> name >> bytes >> seed;
    Broker::PublishOptions options;
    options.name = name;
    bool held = false;  // a copy of what `place` made last
    while (words >> flag) {
      held |= flag == "held";
      options.replace |= flag == "replace";
      options.sealed |= flag == "sealed";
      options.wait &= flag != "late";
      if (flag == "marked") options.metadata = std::to_string(seed);
      int milliseconds = 0;
      if (flag == "lifetime" && words >> milliseconds) options.lifetime = std::chrono::milliseconds(milliseconds);
    }
    const auto put = [&]() -> Result<Share> {
      if (held) return broker_.Put(placements_.back().views(), options);
      auto placed = PlaceWords(bytes, seed, options.sealed);
      if (!placed.ok()) return placed.status();
      return broker_.Publish(*placed, options);
    };
    auto share = put();
    // As Broker::Put does: the memory of the copy may have ended with an earlier daemon.
    if (!held && !share.ok() && share.status().reason() == "MEMORY_LOST") share = put();
    if (!share.ok()) return share.status();
    return Concat(share->generation, " ", share->immutability == Immutability::kEnforced ? "enforced" : "by_contract");
  }

  Result<std::string> Tree(std::istringstream& words) {
    Broker::PublishOptions options;
    uint64_t bytes = 0, seed = 0, count = 0;
    words >> options.name >> bytes >> seed >> count;
    options.replace = true;
    options.structure = Concat("tree of ", count);
    auto placed = PlaceWords(bytes, seed, false, count);
    if (!placed.ok()) return placed.status();
    const auto share = broker_.Publish(*placed, options);
    return share.ok() ? Result<std::string>(Concat(share->generation)) : share.status();
  }

  Result<std::string> Storm(std::istringstream& words) {
    constexpr uint64_t kKept = 32;
    std::string prefix;
    uint64_t bytes = 0, seed = 0, rounds = 0;
    words >> prefix >> bytes >> seed >> rounds;
    for (uint64_t i = 0; i < rounds; ++i) {
      auto placed = PlaceWords(bytes, seed, false);
      if (!placed.ok()) return placed.status();
      Broker::PublishOptions options;
      options.name = Concat(prefix, "/", i);
      options.wait = false;
      auto share = broker_.Publish(*placed, options);
      if (!share.ok()) return share.status();
      if ((i + 1) % kKept != 0 || i < 2 * kKept) continue;
      for (uint64_t old = i + 1 - 2 * kKept; old < i + 1 - kKept; ++old) {
        AB_RETURN_IF_ERROR(broker_.Withdraw({Concat(prefix, "/", old), 0, 0}));
      }
    }
    return Concat(broker_.client_stats().unwaited_publishes);
  }

  // Every magnitude from 8 bytes to `most` occurs equally often.
  static uint64_t SomeSize(uint64_t random, uint64_t most) {
    uint64_t magnitudes = 1;
    while (8ull << magnitudes <= most) ++magnitudes;
    const uint64_t least = 8ull << random % magnitudes;
    return std::min(most, least + random / magnitudes % least) / 8 * 8;
  }

  Result<std::string> Scatter(std::istringstream& words) {
    constexpr size_t kLive = 256;  // besides those that stay
    std::string prefix;
    uint64_t most = 0, seed = 0, rounds = 0, every = 0, kept = 0, kept_bytes = 0;
    words >> prefix >> most >> seed >> rounds >> every;
    std::deque<std::string> live;
    for (uint64_t i = 0; i < rounds + kLive; ++i) {
      if (i < rounds) {
        const uint64_t bytes = SomeSize(Word(seed, i), most);
        const bool keep = i % every == 0;
        const std::string name = Concat(prefix, keep ? "/kept/" : "/gone/", i);
        AB_RETURN_IF_ERROR(PutWords(name, bytes, i));
        if (!keep) live.push_back(name);
        kept += keep ? 1 : 0;
        kept_bytes += keep ? bytes : 0;
      }
      if (live.size() <= kLive && (i < rounds || live.empty())) continue;
      AB_RETURN_IF_ERROR(broker_.Withdraw({live.front(), 0, 0}));
      live.pop_front();
    }
    return Concat("number=", kept, " bytes=", kept_bytes);
  }

  Status PutWords(const std::string& name, uint64_t bytes, uint64_t seed) {
    const auto placed = PlaceWords(bytes, seed, false);
    if (!placed.ok()) return placed.status();
    Broker::PublishOptions options;
    options.name = name;
    return broker_.Publish(*placed, options).status();
  }

  Result<std::string> Place(std::istringstream& words) {
    uint64_t bytes = 0;
    words >> bytes;
    auto placed = PlaceWords(bytes, 1, false);
    if (!placed.ok()) return placed.status();
    placements_.push_back(*std::move(placed));
    return std::string();
  }

  Result<std::string> Get(std::istringstream& words) {
    std::string name, flag;
    uint64_t seed = 0;
    words >> name >> seed;
    Broker::AcquireOptions options;
    while (words >> flag) {
      if (flag == "private") options.mode = MapMode::kPrivate;
      int milliseconds = 0;
      if (flag == "wait" && words >> milliseconds) options.wait = std::chrono::milliseconds(milliseconds);
    }
    auto acquired = broker_.Acquire({name, 0, 0}, options);
    if (!acquired.ok()) return acquired.status();
    AB_RETURN_IF_ERROR(CheckWords(acquired->views, seed));
    if (acquired->views.size() > 1 && acquired->share->structure != Concat("tree of ", acquired->views.size())) {
      return Internal("the structure is another's: ", acquired->share->structure);
    }
    const uint64_t generation = acquired->share->generation;
    kept_.push_back({*std::move(acquired), seed});
    return Concat(generation, " ", kept_.size());
  }

  Result<std::string> Look(std::istringstream& words) {
    std::string name;
    words >> name;
    auto acquired = broker_.Acquire({name, 0, 0});
    if (!acquired.ok()) return acquired.status();
    const Share share = *acquired->share;
    const uint64_t seed = std::stoull(share.metadata);
    AB_RETURN_IF_ERROR(CheckWords(acquired->views, seed));
    kept_.push_back({*std::move(acquired), seed});
    return Concat(share.generation, " ", seed);
  }

  static Channel::Role RoleIn(std::istringstream& words) {
    std::string role;
    words >> role;
    return role == "send" ? Channel::Role::kSender : Channel::Role::kReceiver;
  }

  Result<std::string> Open(std::istringstream& words) {
    std::string name;
    words >> name;
    AB_RETURN_IF_ERROR(ends_.Open(broker_, name, RoleIn(words)));
    return std::string();
  }

  Result<std::string> Send(std::istringstream& words) {
    std::string name;
    uint64_t bytes = 0, seed = 0;
    int milliseconds = 0;
    words >> name >> bytes >> seed >> milliseconds;
    const auto placed = PlaceWords(bytes, seed, false);
    if (!placed.ok()) return placed.status();
    AB_RETURN_IF_ERROR(ends_.Send(name, *placed, seed, std::chrono::milliseconds(milliseconds)));
    return std::string();
  }

  Result<std::string> SendHeld(std::istringstream& words) {
    std::string name;
    uint64_t seed = 0;
    words >> name >> seed;
    AB_RETURN_IF_ERROR(ends_.SendCopies(broker_, name, placements_.back().views(), seed));
    return std::string();
  }

  Result<std::string> Receive(std::istringstream& words) {
    std::string name;
    int milliseconds = 0;
    words >> name >> milliseconds;
    return ends_.Receive(name, std::chrono::milliseconds(milliseconds));
  }

  Result<std::string> Close(std::istringstream& words) {
    std::string name;
    words >> name;
    AB_RETURN_IF_ERROR(ends_.Close(name, RoleIn(words)));
    return std::string();
  }

  Result<std::string> Many(std::istringstream& words) {
    uint64_t seed = 0;
    words >> seed;
    std::vector<ShareRef> refs;
    for (std::string name; words >> name;) refs.push_back({name, 0, 0});
    auto acquired = broker_.AcquireMany(refs, {});
    if (!acquired.ok()) return acquired.status();
    for (auto& each : *acquired) {
      AB_RETURN_IF_ERROR(CheckWords(each.views, seed));
      kept_.push_back({std::move(each), seed});
    }
    return Concat(refs.size());
  }

  Result<std::string> Kinds() const {
    std::set<std::string_view> kinds;
    for (const Kept& each : kept_) kinds.insert(NameOf(each.acquired.share->kind));
    std::string names;
    for (const std::string_view kind : kinds) names += Concat(names.empty() ? "" : " ", kind);
    return names;
  }

  Result<std::string> Check() {
    for (const Kept& each : kept_) {
      if (!each.written) AB_RETURN_IF_ERROR(CheckWords(each.acquired.views, each.seed));
    }
    return Concat(kept_.size());
  }

  Result<std::string> Scribble() {
    for (Kept& each : kept_) {
      const View& view = each.acquired.views[0];
      if (view.read_only) continue;
      std::memset(view.data, 0xEE, view.nbytes());
      each.written = true;
    }
    return std::string();
  }

  Result<std::string> Drop() {
    kept_.clear();
    placements_.clear();
    return std::string();
  }

  Result<std::string> Withdraw(std::istringstream& words) {
    std::string name;
    words >> name;
    AB_RETURN_IF_ERROR(broker_.Withdraw({name, 0, 0}));
    return std::string();
  }

  Result<std::string> GetStats() {
    auto stats = broker_.GetStats();
    if (!stats.ok()) return stats.status();
    return Concat("sessions=", stats->sessions, " leases=", stats->leases, " shares=", stats->shares,
                  " withdrawn_shares=", stats->withdrawn_shares, " arenas=", stats->arenas,
                  " charged_bytes=", stats->charged_bytes, " tickets=", stats->tickets, " waiting=", stats->waiting,
                  " dying_arenas=", stats->dying_arenas, " sessions_cut_total=", stats->sessions_cut_total,
                  " capacity_bytes=", stats->capacity_bytes, " allocated_bytes=", stats->allocated_bytes,
                  " cached_bytes=", stats->cached_bytes, " hazard_slots=", stats->hazard_slots,
                  " pinned_bytes=", stats->pinned_bytes);
  }

  Result<std::string> Mine() {
    const ClientStats stats = broker_.client_stats();
    return Concat("arenas_written=", stats.arenas_written, " arena_bytes=", stats.arena_bytes,
                  " arenas_mapped=", stats.arenas_mapped, " live_leases=", stats.live_leases,
                  " pending_releases=", stats.pending_releases, " catalogue_acquires=", stats.catalogue_acquires,
                  " unwaited_publishes=", stats.unwaited_publishes);
  }

  Result<std::string> List(std::istringstream& words) {
    std::string prefix;
    words >> prefix;
    auto shares = broker_.List(prefix);
    if (!shares.ok()) return shares.status();
    std::string names;
    for (const auto& each : *shares) names += each.share.name + " ";
    return names;
  }

  Result<std::string> Churn(std::istringstream& words) {
    uint64_t seed = 0, names = 0, rounds = 0;
    words >> seed >> names >> rounds;
    uint64_t random = seed;
    for (uint64_t i = 0; i < rounds; ++i) {
      random = Word(random, i);
      auto acquired = broker_.Acquire({Concat("churn/", random % names), 0, 0});
      if (!acquired.ok()) return acquired.status();
      AB_RETURN_IF_ERROR(CheckWords(acquired->views[0], 1));
      if (random % 3 == 0) kept_.push_back({*std::move(acquired), 1});
      if (kept_.size() > 16) kept_.erase(kept_.begin());
    }
    return std::string();
  }

  Result<std::string> OutcomeOfFailed(std::istringstream& words) {
    int milliseconds = 0;
    words >> milliseconds;
    const auto outcome = broker_.OutcomeOf(failed_, std::chrono::milliseconds(milliseconds));
    if (!outcome.ok()) return outcome.status();
    if (outcome->status.ok() && !outcome->share) return std::string("done");
    if (outcome->status.ok()) return Concat("done ", outcome->share->name, " ", outcome->share->generation);
    return Concat("not done ", CodeName(outcome->status.code()), " ", outcome->status.reason());
  }

  Result<std::string> OpenEnd(std::istringstream& words) {
    std::string name, role, mode;
    ChannelOptions options;
    words >> name >> role >> mode >> options.capacity;
    if (mode == "queue") options.mode = ChannelMode::kQueue;
    if (mode == "broadcast") options.mode = ChannelMode::kBroadcast;
    if (mode == "latest") options.mode = ChannelMode::kLatest;
    auto opened =
        broker_.OpenChannel(name, role == "sender" ? Channel::Role::kSender : Channel::Role::kReceiver, options);
    if (!opened.ok()) return opened.status();
    end_ = *std::move(opened);
    return std::string();
  }

  Result<std::string> Stream(std::istringstream& words) {
    int milliseconds = 0;
    uint64_t bytes = 0, seed = 0, sent = 0;
    words >> milliseconds >> bytes >> seed;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < until) {
      auto placed = PlaceWords(bytes, seed + sent + 1, false);
      if (!placed.ok()) return placed.status();
      Status told = end_->Send(*placed, {.on_peer_death = PeerDeath::kWait});
      if (!told.ok()) return told;
      ++sent;
    }
    AB_RETURN_IF_ERROR(end_->Close());
    return Concat(sent);
  }

  Result<std::string> SendSome(std::istringstream& words) {
    uint64_t bytes = 0, seed = 0, count = 0;
    words >> count >> bytes >> seed;
    for (uint64_t i = 1; i <= count; ++i) {
      auto placed = PlaceWords(bytes, seed + i, false);
      if (!placed.ok()) return placed.status();
      AB_RETURN_IF_ERROR(end_->Send(*placed, {}));
    }
    return std::string();
  }

  Result<std::string> ReceiveSome(std::istringstream& words) {
    uint64_t count = 0, seed = 0, got = 0, first = 0, last = 0;
    std::string flag;
    words >> count >> seed >> flag;
    while (count == 0 || got < count) {
      auto received = end_->Receive({});
      if (received.status().reason() == "CHANNEL_ENDED" && count == 0) break;
      if (!received.ok()) return received.status();
      const uint64_t sequence = received->sent.sequence;
      if (first == 0) first = sequence;
      const bool follows = flag == "gaps" ? sequence > last : last == 0 || sequence == last + 1;
      if (!follows) return Internal("after ", last, " came ", sequence);
      last = sequence;
      AB_RETURN_IF_ERROR(CheckWords(received->views[0], seed + sequence));
      ++got;
    }
    return Concat(got, " ", first, " ", last);
  }

  Result<std::string> Visit(std::istringstream& words) {
    std::string name;
    int milliseconds = 0;
    uint64_t visits = 0;
    words >> name >> milliseconds;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    for (; std::chrono::steady_clock::now() < until; ++visits) {
      auto opened = broker_.OpenChannel(name, Channel::Role::kSender);
      if (!opened.ok()) return opened.status();
      AB_RETURN_IF_ERROR(opened->Close());
    }
    return Concat(visits);
  }

  Result<std::string> CloseEnd() {
    AB_RETURN_IF_ERROR(end_->Close());
    return std::string();
  }

  Result<std::string> Fork() {
    const pid_t child = ::fork();
    if (child < 0) return Internal("fork failed");
    if (child == 0) {
      for (;;) ::pause();
    }
    return Concat(child);
  }

  Result<std::string> ForkGet(std::istringstream& words) {
    const std::string rest = words.str().substr(static_cast<size_t>(words.tellg()));
    const pid_t child = ::fork();
    if (child < 0) return Internal("fork failed");
    if (child == 0) {
      const auto inherited = Check();
      std::istringstream again(rest);
      const auto got = inherited.ok() ? Get(again) : inherited;
      (void)Drop();
      ::_exit(got.ok() && Check().ok() ? 0 : 1);
    }
    int state = 0;
    if (::waitpid(child, &state, 0) != child || !WIFEXITED(state)) return Internal("the child did not exit");
    if (WEXITSTATUS(state) != 0) return Internal("the child failed");
    return std::string();
  }

  Broker broker_;
  ChannelEnds ends_;
  const std::optional<Device> gpu_;
  Status failed_;  // the result of the last failed command
  std::vector<Placement> placements_;
  std::vector<Kept> kept_;
  std::optional<Channel> end_;
  const std::map<std::string, Verb> verbs_ = {
      {"put", [this](auto& words) { return Put(words); }},
      {"tree", [this](auto& words) { return Tree(words); }},
      {"storm", [this](auto& words) { return Storm(words); }},
      {"scatter", [this](auto& words) { return Scatter(words); }},
      {"place", [this](auto& words) { return Place(words); }},
      {"get", [this](auto& words) { return Get(words); }},
      {"look", [this](auto& words) { return Look(words); }},
      {"open", [this](auto& words) { return Open(words); }},
      {"send", [this](auto& words) { return Send(words); }},
      {"send_held", [this](auto& words) { return SendHeld(words); }},
      {"receive", [this](auto& words) { return Receive(words); }},
      {"close", [this](auto& words) { return Close(words); }},
      {"many", [this](auto& words) { return Many(words); }},
      {"kinds", [this](auto&) { return Kinds(); }},
      {"check", [this](auto&) { return Check(); }},
      {"scribble", [this](auto&) { return Scribble(); }},
      {"drop", [this](auto&) { return Drop(); }},
      {"withdraw", [this](auto& words) { return Withdraw(words); }},
      {"stats", [this](auto&) { return GetStats(); }},
      {"mine", [this](auto&) { return Mine(); }},
      {"list", [this](auto& words) { return List(words); }},
      {"flush",
       [this](auto&) -> Result<std::string> {
         AB_RETURN_IF_ERROR(broker_.Flush());
         return std::string();
       }},
      {"outcome", [this](auto& words) { return OutcomeOfFailed(words); }},
      {"churn", [this](auto& words) { return Churn(words); }},
      {"open_end", [this](auto& words) { return OpenEnd(words); }},
      {"stream", [this](auto& words) { return Stream(words); }},
      {"send_some", [this](auto& words) { return SendSome(words); }},
      {"receive_some", [this](auto& words) { return ReceiveSome(words); }},
      {"visit", [this](auto& words) { return Visit(words); }},
      {"close_end", [this](auto&) { return CloseEnd(); }},
      {"fork", [this](auto&) { return Fork(); }},
      {"fork_get", [this](auto& words) { return ForkGet(words); }},
  };
};

Result<std::string> Answer(FaultClient& client, const std::string& line) {
  std::istringstream words(line);
  return client.Do(words);
}

void Tell(const Result<std::string>& answer) {
  if (answer.ok()) {
    std::cout << "ok " << *answer << std::endl;
    return;
  }
  const Status& status = answer.status();
  std::cout << "error " << CodeName(status.code()) << " " << (status.reason().empty() ? "-" : status.reason()) << " "
            << status.message() << std::endl;
}

int Serve(int argc, char** argv) {
  constexpr size_t kLineBytesMax = 4096;  // reading one allocates nothing
  if (argc < 3) {
    std::cerr << "usage: fault_client ADDRESS NAMESPACE [TIMEOUT_MS [calls]]\n";
    return 2;
  }
  Broker::Options options;
  options.address = argv[1];
  options.ns = argv[2];
  options.client = "fault_client";
  if (argc > 3) options.timeout = std::chrono::milliseconds(std::atoi(argv[3]));
  options.catalogue = argc <= 4;  // "calls": every acquire is a call
  std::optional<Device> gpu;
  options.direct_channels = std::getenv("FAULT_CLIENT_BY_CALLS") == nullptr;
  if (const char* const driver = std::getenv("FAULT_CLIENT_GPU"); driver != nullptr) {
    options.cuda_driver = driver;
    gpu = Device{kDeviceCuda, 0, {}};
  }
  FaultClient client(Broker(options), gpu);
  std::string line;
  line.reserve(kLineBytesMax);
  while (std::getline(std::cin, line)) {
    try {
      Tell(Answer(client, line));
    } catch (const std::bad_alloc&) {
      std::cout << "error RESOURCE_EXHAUSTED BAD_ALLOC no memory" << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace arraybridge

int main(int argc, char** argv) { return arraybridge::Serve(argc, argv); }
