// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/shares/bench.h"

#include <google/protobuf/struct.pb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <ostream>
#include <utility>

#include "client/ctl/output/table.h"
#include "client/ctl/shares/transfer.h"

namespace arraybridge::ctl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr uint64_t kSmall = 4096;
constexpr std::array<uint64_t, 2> kSizes = {64 << 10, 16 << 20};

struct Row {
  std::string what;
  std::string how;
  uint64_t bytes = 0;
  uint64_t count = 0;
  uint64_t median_ns = 0;
  uint64_t p99_ns = 0;

  uint64_t bytes_per_second() const { return median_ns == 0 ? 0 : bytes * 1'000'000'000 / median_ns; }
};

// `once` is the measured operation. It runs once before the measurement, to warm up.
Result<Row> Time(Row row, const BenchWishes& wishes, const std::function<Status()>& once) {
  AB_RETURN_IF_ERROR(once());
  std::vector<uint64_t> times;
  for (uint64_t i = 0; i < wishes.count; ++i) {
    const auto begun = Clock::now();
    AB_RETURN_IF_ERROR(once());
    times.push_back(static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(Clock::now() - begun).count()));
  }
  std::sort(times.begin(), times.end());
  row.count = wishes.count;
  row.median_ns = times[times.size() / 2];
  row.p99_ns = times[(times.size() - 1) * 99 / 100];
  return row;
}

ArraySpec BytesOf(uint64_t size) {
  ArraySpec spec;
  spec.type = {1, 8};
  spec.dtype = "uint8";
  spec.shape = {static_cast<int64_t>(size)};
  return spec;
}

class Bencher {
 public:
  Bencher(const Options& options, const BenchWishes& wishes, std::vector<Row>* rows)
      : options_(options), wishes_(wishes), rows_(*rows) {}

  Status Run() {
    if (Wanted("allocate")) AB_RETURN_IF_ERROR(Allocate());
    if (Wanted("acquire")) AB_RETURN_IF_ERROR(Acquire());
    return Wanted("copy") ? Copy() : Ok();
  }

 private:
  bool Wanted(std::string_view what) const { return wishes_.what.empty() || wishes_.what == what; }

  Status Add(Row row, const std::function<Status()>& once) {
    auto timed = Time(std::move(row), wishes_, once);
    if (!timed.ok()) return timed.status();
    rows_.push_back(*std::move(timed));
    return Ok();
  }

  // A name that is unique on this host, with a lifetime in case the command is killed.
  Broker::PublishOptions Named() const {
    Broker::PublishOptions how;
    how.name = Concat("arraybridgectl-bench-", ::getpid());
    how.lifetime = std::chrono::minutes(10);
    return how;
  }

  Status Allocate() {
    for (const uint64_t size : kSizes) {
      auto broker = ClientOf(options_);
      if (!broker.ok()) return broker.status();
      const ArraySpec spec = BytesOf(size);
      AB_RETURN_IF_ERROR(Add({"allocate", "in an existing arena", size}, [&] {
        return broker->Empty({&spec, 1}).status();
      }));
    }
    return Ok();
  }

  // Acquires by a call, and without one, which needs a share that this process has acquired before.
  Status Acquire() {
    auto maker = ClientOf(options_);
    auto caller = ClientOf(options_, false);
    auto holder = ClientOf(options_);
    if (!maker.ok()) return maker.status();
    const ArraySpec spec = BytesOf(kSmall);
    const auto placed = maker->Empty({&spec, 1});
    if (!placed.ok()) return placed.status();
    const auto share = maker->Publish(*placed, Named());
    if (!share.ok()) return share.status();
    const ShareRef ref{.name = share->name};
    for (const auto& [how, broker] : {std::pair{"by a call", &*caller}, {"without a call", &*holder}}) {
      AB_RETURN_IF_ERROR(Add({"acquire", how, kSmall}, [&, by = broker] { return by->Acquire(ref).status(); }));
    }
    return maker->Withdraw(ref);
  }

  Status Copy() {
    for (const uint64_t size : kSizes) {
      auto broker = ClientOf(options_);
      if (!broker.ok()) return broker.status();
      std::vector<std::byte> bytes(size, std::byte{7});
      const ArraySpec spec = BytesOf(size);
      const auto view = Describe(bytes.data(), spec.type, spec.shape, {}, {}, true, nullptr);
      if (!view.ok()) return view.status();
      AB_RETURN_IF_ERROR(Add({"copy", "into broker memory", size}, [&] {
        return broker->Place({&*view, 1}).status();
      }));
    }
    return Ok();
  }

  const Options& options_;
  const BenchWishes& wishes_;
  std::vector<Row>& rows_;
};

std::string Micro(uint64_t nanoseconds_taken, const Options& options) {
  if (options.output == Output::kCsv) return std::to_string(nanoseconds_taken);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f us", static_cast<double>(nanoseconds_taken) / 1000);
  return text.data();
}

Status Print(const std::vector<Row>& rows, const Options& options, std::ostream& out) {
  Table table({"WHAT", "HOW", "SIZE", "COUNT", "MEDIAN", "99 OF 100", "PER SECOND"}, StyleOf(options));
  google::protobuf::ListValue list;
  for (const Row& row : rows) {
    const bool moves = row.what == "copy";
    table.Add({row.what, row.how, table.Size(row.bytes), std::to_string(row.count), Micro(row.median_ns, options),
               Micro(row.p99_ns, options), moves ? table.Size(row.bytes_per_second()) : ""});
    auto& fields = *list.add_values()->mutable_struct_value()->mutable_fields();
    fields["what"].set_string_value(row.what);
    fields["how"].set_string_value(row.how);
    fields["size"].set_string_value(std::to_string(row.bytes));
    fields["count"].set_string_value(std::to_string(row.count));
    fields["median_ns"].set_string_value(std::to_string(row.median_ns));
    fields["p99_ns"].set_string_value(std::to_string(row.p99_ns));
  }
  if (options.output == Output::kJsonl) return PrintJsonLines(list.values(), out);
  if (IsJson(options)) return PrintJson(list, options, out);
  table.Print(out, options.header);
  return Ok();
}

}  // namespace

const std::vector<std::string>& BenchKinds() {
  static const std::vector<std::string> kinds = {"allocate", "acquire", "copy"};
  return kinds;
}

Status Bench(const Options& options, const BenchWishes& wishes, std::ostream& out) {
  std::vector<Row> rows;
  AB_RETURN_IF_ERROR(Bencher(options, wishes, &rows).Run());
  return Print(rows, options, out);
}

}  // namespace arraybridge::ctl
