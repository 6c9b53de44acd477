// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/http/metrics.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "daemon/service/http/overview.h"
#include "daemon/service/http/tiers/tier_metrics.h"
#include "daemon/service/telemetry/log.h"
#include "proto/boundary/text.h"

namespace arraybridge::daemon {
namespace {

// Writes a family: its HELP and TYPE lines, then its samples.
class Page {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  // `labels` has no braces; `suffix` is that of a histogram's parts.
  template <class Number>
  void Sample(std::string_view labels, Number value, std::string_view suffix = "") {
    text_ += name_;
    text_ += suffix;
    if (!labels.empty()) text_ += fmt::format("{{{}}}", labels);
    text_ += fmt::format(" {}\n", value);
  }
  template <class Number>
  void Only(std::string_view name, std::string_view type, std::string_view help, Number value) {
    Family(name, type, help);
    Sample("", value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

std::string EscapedLabel(std::string_view value) {
  std::string out;
  for (const char letter : Printable(std::string(value))) {
    if (letter == '\\' || letter == '"') out += '\\';
    out += letter;
  }
  return out;
}

// Labels that can be joined with those of GPU vendors' exporters: the ordinal and the UUID.
std::string LabelsOf(const Device& device, std::string_view kind) {
  const std::string name = device.type == kDeviceCpu ? "host" : fmt::format("cuda:{}", device.id);
  return fmt::format("device=\"{}\",uuid=\"{}\",kind=\"{}\"", name, EscapedLabel(device.uuid), kind);
}

std::string LabelsOf(const DeviceFacts& device) {
  return LabelsOf(device.device, device.kinds.empty() ? "none" : NameOf(device.kinds.front()));
}

// Adds one family with a sample for each row.
template <class Rows, class LabelsOfRow, class Number>
void AddEach(Page& page, std::string_view name, std::string_view help, const Rows& rows, LabelsOfRow labels,
             Number number) {
  page.Family(name, name.ends_with("_total") ? "counter" : "gauge", help);
  for (const auto& row : rows) page.Sample(labels(row), number(row));
}

void AddDevices(Page& page, const std::vector<DeviceFacts>& devices) {
  const auto add = [&](std::string_view name, std::string_view help, auto number) {
    AddEach(
        page, name, help, devices, [](const DeviceFacts& device) { return LabelsOf(device); }, number);
  };
  add("arraybridge_memory_capacity_bytes", "Bytes that may be handed out on the device.",
      [](const DeviceFacts& device) { return device.capacity_bytes; });
  add("arraybridge_memory_allocated_bytes", "Footprints of all blocks, including cached ones.",
      [](const DeviceFacts& device) { return device.allocated_bytes; });
  add("arraybridge_memory_cached_bytes", "Bytes populated ahead of demand and not yet handed out.",
      [](const DeviceFacts& device) { return device.cached_bytes; });
  add("arraybridge_memory_quarantined_bytes", "Bytes without a name that a process may still map.",
      [](const DeviceFacts& device) { return device.quarantined_bytes; });
  add("arraybridge_device_up", "1, or 0 after a call to the device failed permanently, at the start or later.",
      [](const DeviceFacts& device) { return device.out_of_service ? 0 : 1; });
}

constexpr std::array<std::string_view, static_cast<size_t>(FreeCause::kLast) + 1> kFreeNames = {
    "release", "session_end", "withdraw", "admin"};

double Seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// Adds samples to the current family.
void AddDurations(Page& page, const std::string& labels, const Durations& took) {
  for (size_t i = 0; i < took.within.size(); ++i) {
    page.Sample(fmt::format("{},le=\"{}\"", labels, Seconds(kDurationBuckets[i])), took.within[i], "_bucket");
  }
  page.Sample(labels + ",le=\"+Inf\"", took.count, "_bucket");
  page.Sample(labels, Seconds(took.sum), "_sum");
  page.Sample(labels, took.count, "_count");
}

void AddFlows(Page& page, const std::vector<MemoryFlow>& flows) {
  const auto labels = [](const MemoryFlow& flow) { return LabelsOf(flow.device, NameOf(flow.kind)); };
  const auto add = [&](std::string_view name, std::string_view help, uint64_t MemoryFlow::*number) {
    AddEach(page, name, help, flows, labels, [number](const MemoryFlow& flow) { return flow.*number; });
  };
  add("arraybridge_allocations", "Arenas handed out and not yet freed.", &MemoryFlow::allocations);
  add("arraybridge_allocations_total", "Arenas handed out since the start.", &MemoryFlow::allocations_total);
  add("arraybridge_allocated_bytes_total", "Footprints of all arenas handed out since the start.",
      &MemoryFlow::allocated_bytes_total);
  page.Family("arraybridge_allocation_duration_seconds", "histogram",
              "Time to allocate an arena on the device, without the wait for room.");
  for (const MemoryFlow& flow : flows) AddDurations(page, labels(flow), flow.took);
  page.Family("arraybridge_freed_bytes_total", "counter", "Footprints of freed arenas, by the reason.");
  for (const MemoryFlow& flow : flows) {
    for (size_t i = 0; i < kFreeNames.size(); ++i) {
      page.Sample(fmt::format("{},cause=\"{}\"", labels(flow), kFreeNames[i]), flow.freed_bytes_total[i]);
    }
  }
}

void AddTickets(Page& page, const Snapshot& snapshot) {
  page.Family("arraybridge_tickets_total", "counter", "Tickets by their outcome, and refusals to redeem one.");
  page.Sample("outcome=\"redeemed\"", snapshot.tickets_redeemed_total);
  page.Sample("outcome=\"expired\"", snapshot.tickets_expired_total);
  page.Sample("outcome=\"refused\"", snapshot.tickets_refused_total);
}

void AddCounters(Page& page, const v1::GetStatsResponse& stats) {
  for (const Counter& counter : Counters()) {
    page.Only(fmt::format("arraybridge_{}", counter.name), counter.name.ends_with("_total") ? "counter" : "gauge",
              counter.help, (stats.*counter.value)());
  }
}

std::string LabelsOf(const Owner& owner, bool names) {
  const auto& [uid, ns] = owner;
  if (!names) return fmt::format("uid=\"{}\"", OwnerName(uid));
  return fmt::format("uid=\"{}\",namespace=\"{}\"", OwnerName(uid), EscapedLabel(ns));
}

void AddNamespaces(Page& page, bool names, const std::vector<NamespaceRow>& rows) {
  const auto sums = SumByOwner(rows, names);
  const auto labels = [names](const auto& sum) { return LabelsOf(sum.first, names); };
  const auto add = [&](std::string_view name, std::string_view help, uint64_t NamespaceRow::*number) {
    AddEach(page, name, help, sums, labels, [&](const auto& sum) { return sum.second.*number; });
  };
  add("arraybridge_namespace_quota_bytes", "Bytes that the namespaces may hold.", &NamespaceRow::quota_bytes);
  add("arraybridge_namespace_charged_bytes", "Footprints of the namespaces' arenas.", &NamespaceRow::charged_bytes);
  add("arraybridge_shares", "Shares with a name.", &NamespaceRow::shares);
  add("arraybridge_share_bytes", "Bytes of all shares: with a name, queued, and still read.",
      &NamespaceRow::share_bytes);
  page.Family("arraybridge_charged_bytes", "gauge",
              "The charged bytes by their use: named, queued in channels, held by readers, or unused in arenas.");
  for (const auto& [owner, row] : sums) {
    const std::string owner_labels = LabelsOf(owner, names);
    for (const auto& [use, bytes] : {std::pair{"named", row.named_bytes}, std::pair{"queued", row.queued_bytes},
                                     std::pair{"held", row.held_bytes()}, std::pair{"unused", row.unused_bytes()}}) {
      page.Sample(fmt::format("{},use=\"{}\"", owner_labels, use), bytes);
    }
  }
}

// The channels of each user or, with `names`, each channel: at most kChannelsShown of them.
struct ChannelSums {
  std::map<Owner, std::pair<uint64_t, std::chrono::milliseconds>> full_and_oldest;
  std::map<std::pair<Owner, std::string>, ChannelRow> shown;  // by names that are different when Printable
};

constexpr size_t kChannelsShown = 100;
constexpr size_t kChannelsRead = 20'000;  // of the broker's, for one page

ChannelSums ReadChannels(const Broker& broker, bool names) {
  ChannelSums sums;
  ListFilter filter;
  filter.everybody = true;
  filter.page_size = 500;
  size_t read = 0;
  do {
    auto page = broker.ListChannels(SessionId{}, filter);
    if (!page.ok()) break;
    for (ChannelRow& row : page->rows) {
      ++read;
      const Owner owner{row.uid, names ? Printable(row.ns) : std::string()};
      auto& [full, oldest] = sums.full_and_oldest[owner];
      full += row.full ? 1 : 0;
      oldest = std::max(oldest, row.oldest);
      if (!names || sums.shown.size() >= kChannelsShown) continue;
      sums.shown.try_emplace({owner, Printable(row.name)}, std::move(row));
    }
    filter.page_token = page->next;
  } while (!filter.page_token.empty() && read < kChannelsRead);
  return sums;
}

void AddChannels(Page& page, bool names, const Broker& broker, uint64_t channels) {
  const ChannelSums sums = ReadChannels(broker, names);
  const auto labels = [names](const auto& sum) { return LabelsOf(sum.first, names); };
  AddEach(page, "arraybridge_channels_full", "Channels whose queue has no room.", sums.full_and_oldest, labels,
          [](const auto& sum) { return sum.second.first; });
  AddEach(page, "arraybridge_channels_oldest_seconds",
          "Time for which the longest waiting array of a channel has waited; direct channels are not measured.",
          sums.full_and_oldest, labels, [](const auto& sum) { return Seconds(sum.second.second); });
  if (!names) return;
  const auto add = [&](std::string_view name, std::string_view help, auto number) {
    AddEach(
        page, name, help, sums.shown,
        [](const auto& shown) {
          return fmt::format("{},channel=\"{}\"", LabelsOf(shown.first.first, true), EscapedLabel(shown.first.second));
        },
        [number](const auto& shown) { return number(shown.second); });
  };
  add("arraybridge_channel_queued", "Arrays that wait in the channel.",
      [](const ChannelRow& row) { return row.queued; });
  add("arraybridge_channel_capacity", "Arrays that may wait in the channel.",
      [](const ChannelRow& row) { return row.capacity; });
  add("arraybridge_channel_oldest_seconds", "Time for which the first of them has waited.",
      [](const ChannelRow& row) { return Seconds(row.oldest); });
  add("arraybridge_channel_arrays_sent_total", "Arrays sent into the channel.",
      [](const ChannelRow& row) { return row.totals.sent; });
  add("arraybridge_channel_arrays_received_total", "Arrays received from the channel, by each receiver.",
      [](const ChannelRow& row) { return row.totals.received; });
  add("arraybridge_channel_arrays_dropped_total", "Arrays that receivers of the channel missed, or that were drained.",
      [](const ChannelRow& row) { return row.totals.dropped; });
  page.Only("arraybridge_channels_not_shown", "gauge", "Channels that are too many to have samples of their own.",
            channels - std::min<uint64_t>(channels, sums.shown.size()));
}

std::string LabelsOf(const Traffic::Row& row) {
  return fmt::format("door=\"{}\",verb=\"{}\"", NameOf(row.door), row.verb);
}

void AddTraffic(Page& page, const Traffic& traffic) {
  const std::vector<Traffic::Row> rows = traffic.Rows();
  page.Family("arraybridge_requests_inflight", "gauge", "Requests without an answer yet, including waiting ones.");
  for (const Traffic::Row& row : rows) page.Sample(LabelsOf(row), row.in_flight);
  page.Family("arraybridge_descriptors_passed_total", "counter", "Descriptors sent to clients, by the kind of memory.");
  for (const FdKind kind : {FdKind::kMemfd, FdKind::kCudaVmm, FdKind::kPages}) {
    page.Sample(fmt::format("kind=\"{}\"", NameOf(kind)), traffic.passed(kind));
  }
  page.Family("arraybridge_requests_total", "counter", "Requests answered, by status code.");
  for (const Traffic::Row& row : rows) {
    for (const Traffic::Answered& answer : row.answers) {
      page.Sample(fmt::format("{},code=\"{}\"", LabelsOf(row), answer.code), answer.count);
    }
  }
  page.Family("arraybridge_request_duration_seconds", "histogram", "From a request's arrival to its answer.");
  for (const Traffic::Row& row : rows) AddDurations(page, LabelsOf(row), row);
}

void AddCounts(Page& page, std::string_view name, std::string_view help, std::string_view label,
               const Tallies::Counts& counts) {
  page.Family(name, "counter", help);
  for (const auto& [value, count] : counts) page.Sample(fmt::format("{}=\"{}\"", label, value), count);
}

void AddTallies(Page& page, const Tallies& tallies) {
  AddCounts(page, "arraybridge_session_ends_total", "Ended sessions, by cause.", "cause", tallies.ends());
  AddCounts(page, "arraybridge_limit_hits_total", "Requests refused for a limit, a quota or lack of memory, by limit.",
            "limit", tallies.limit_hits());
  AddCounts(page, "arraybridge_auth_failures_total", "Requests refused for a missing right, by reason.", "reason",
            tallies.auth_failures());
  AddCounts(page, "arraybridge_allocation_failures_total", "Failed allocations, by the missing resource.", "reason",
            tallies.allocation_failures());
}

void AddLife(Page& page, const Life& life) {
  const Recovered& recovered = life.recovered;
  const auto usage = life.store == nullptr ? DescriptorStore::Usage{} : life.store->usage();
  page.Only("arraybridge_recoveries_total", "counter",
            "Daemons that continued the one before them, since the first one.", recovered.life - 1);
  page.Only("arraybridge_recovered_shares", "gauge", "Shares that this daemon took over from the one before it.",
            recovered.shares);
  page.Only("arraybridge_recovered_sessions", "gauge", "Sessions that this daemon took over.",
            recovered.session_count());
  page.Only("arraybridge_recovered_bytes", "gauge", "Footprints of the arenas that this daemon took over.",
            recovered.bytes);
  page.Only("arraybridge_lost_shares_total", "counter",
            "Shares with a name that no daemon took over, since the first daemon.", recovered.lost_shares_total);
  page.Only("arraybridge_store_up", "gauge", "1 while a process keeps the descriptors for the next daemon.",
            life.store != nullptr && !usage.holder_has_ended ? 1 : 0);
  page.Only("arraybridge_store_entries", "gauge", "Descriptors that are kept for the next daemon.", usage.entries);
  page.Only("arraybridge_store_entries_max", "gauge", "Maximum of these descriptors.", usage.entries_max);
  page.Only("arraybridge_store_name_bytes", "gauge", "Bytes of the names of these descriptors.", usage.name_bytes);
  page.Only("arraybridge_store_name_bytes_max", "gauge", "Maximum of these bytes.", usage.name_bytes_max);
  page.Only("arraybridge_store_refused_total", "counter",
            "Sessions, arenas and pages that were refused because the maximum was reached.", usage.refused_total);
}

void AddLog(Page& page) {
  page.Family("arraybridge_log_messages_total", "counter", "Log lines, by level.");
  for (const auto& [name, level] : {std::pair{"debug", log::Level::kDebug}, std::pair{"info", log::Level::kInfo},
                                    std::pair{"warn", log::Level::kWarn}, std::pair{"error", log::Level::kError}}) {
    page.Sample(fmt::format("level=\"{}\"", name), log::Written(level));
  }
  page.Only("arraybridge_log_dropped_lines_total", "counter",
            "Log lines that were lost: their reader is too slow, or a disk is full.", log::Dropped());
}

uint64_t OpenDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), ::closedir);
  uint64_t count = 0;
  while (directory && ::readdir(directory.get()) != nullptr) ++count;
  constexpr uint64_t kOthers = 3;  // ".", ".." and the directory itself
  return count > kOthers ? count - kOthers : 0;
}

uint64_t ResidentBytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "re"), std::fclose);
  unsigned long long pages = 0;
  if (!file || std::fscanf(file.get(), "%*u %llu", &pages) != 1) return 0;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The standard metrics of Prometheus client libraries.
void AddProcess(Page& page, double started) {
  timespec cpu{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  page.Only("process_cpu_seconds_total", "counter", "Processor time of the daemon.",
            static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9);
  page.Only("process_resident_memory_bytes", "gauge", "Resident memory of the daemon, without warm blocks.",
            ResidentBytes());
  page.Only("process_open_fds", "gauge", "Open descriptors of the daemon.", OpenDescriptors());
  page.Only("process_max_fds", "gauge", "Maximum number of open descriptors.", descriptors.rlim_cur);
  page.Only("process_start_time_seconds", "gauge", "Start time of the process, in seconds since 1970.", started);
}

}  // namespace

double Metrics::NowSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Only the watchdog's thread calls it.
void Metrics::CountWatchdogPing() {
  const Clock::rep now = Clock::now().time_since_epoch().count();
  const Clock::rep last = last_ping_.exchange(now, std::memory_order_relaxed);
  if (last != 0) longest_gap_.store(std::max(longest_gap_.load(std::memory_order_relaxed), now - last));
  watchdog_pings_.fetch_add(1, std::memory_order_relaxed);
}

void Metrics::CountReload(bool ok) {
  (ok ? reloads_ : reloads_refused_).fetch_add(1, std::memory_order_relaxed);
  if (ok) last_reload_.store(NowSeconds(), std::memory_order_relaxed);
}

std::string Metrics::Text() const {
  Page page;
  page.Family("arraybridge_build_info", "gauge", "Always 1; the labels describe the running version.");
  page.Sample(fmt::format("version=\"{}\",revision=\"{}\",driver=\"{}\"", EscapedLabel(ARRAYBRIDGE_VERSION),
                          EscapedLabel(build_.revision), EscapedLabel(build_.driver)),
              1);
  page.Only("arraybridge_ready", "gauge", "1 while the doors are open, 0 while draining.", verbs_.draining() ? 0 : 1);
  const Snapshot snapshot = broker_.TakeSnapshot();
  AddCounters(page, verbs_.lists.Stats(snapshot));
  page.Only("arraybridge_withdrawals_total", "counter", "Names withdrawn since the start, by clients or by a lifetime.",
            snapshot.withdrawals_total);
  AddTickets(page, snapshot);
  AddDevices(page, broker_.Devices());
  AddFlows(page, snapshot.flows);
  const bool names = config_.http_namespaces;  // a reload may change it meanwhile
  AddNamespaces(page, names, broker_.NamespaceRows());
  AddChannels(page, names, broker_, snapshot.channels);
  AddTraffic(page, verbs_.counts().traffic);
  AddTallies(page, verbs_.counts().tallies);
  AddLife(page, verbs_.lists.life());
  AddLog(page);
  page.Only("arraybridge_watchdog_pings_total", "counter", "Watchdog notifications sent to the service manager.",
            watchdog_pings_.load());
  page.Only("arraybridge_watchdog_longest_gap_seconds", "gauge", "The longest time between two watchdog notifications.",
            Seconds(Clock::duration(longest_gap_.load(std::memory_order_relaxed))));
  page.Family("arraybridge_config_reloads_total", "counter", "Reloads of the configuration, by result.");
  page.Sample("result=\"ok\"", reloads_.load());
  page.Sample("result=\"refused\"", reloads_refused_.load());
  page.Only("arraybridge_config_last_reload_success_timestamp_seconds", "gauge",
            "Time at which the configuration in force was read.", last_reload_.load());
  const double started = NowSeconds() - Seconds(Clock::now() - verbs_.lists.started());
  page.Only("arraybridge_start_time_seconds", "gauge",
            "Time at which the daemon began to serve, in seconds since 1970.", started);
  AddProcess(page, started);
  return page.Take() + TierMetrics(verbs_.tiers.numbers());
}

}  // namespace arraybridge::daemon
