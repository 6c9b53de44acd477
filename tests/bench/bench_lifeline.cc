// SPDX-License-Identifier: Apache-2.0
// put and acquire through the C++ client, each beside its floor: memcpy into warm shared memory for bytes, a bare
// SEQPACKET ping-pong of the same message sizes for round trips.
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include <arraybridge/broker.h>

#include "tests/bench/support.h"

namespace arraybridge::bench {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
// The size of an Acquire or Publish of one float32 array on the wire, with its header (printed by the codec's tests).
constexpr size_t kRequestBytes = 48;
constexpr size_t kAnswerBytes = 110;

struct Bytes {
  explicit Bytes(uint64_t count) : size(count), data(std::make_unique_for_overwrite<char[]>(count)) {
    std::memset(data.get(), 7, count);
  }
  View view() const {
    return *Describe(data.get(), {2, 32, 1}, {static_cast<int64_t>(size / 4)}, {}, Device{}, true, nullptr);
  }
  uint64_t size;
  std::unique_ptr<char[]> data;
};

Broker Connect(const Arguments& arguments) {
  // Measures calls; bench_hazards measures acquires without a call.
  Broker broker({.address = arguments.Text("address"),
                 .ns = "bench",
                 .timeout = std::chrono::seconds(30),
                 .client = "bench",
                 .catalogue = false});
  Must(broker.GetServerInfo());
  return broker;
}

void Put(Broker& broker, const Bytes& source, const std::string& name) {
  const View view = source.view();
  Must(broker.Put({&view, 1}, {.name = name, .replace = true}));
}

// memcpy into shared, populated and mapped memory: the minimum cost of a put of these bytes.
class WarmShared {
 public:
  explicit WarmShared(uint64_t size) : size_(size), data_(Map(size)) { std::memset(data_, 1, size); }
  ~WarmShared() { ::munmap(data_, size_); }
  WarmShared(const WarmShared&) = delete;
  WarmShared& operator=(const WarmShared&) = delete;
  void CopyFrom(const Bytes& source) { std::memcpy(data_, source.data.get(), source.size); }

 private:
  static void* Map(uint64_t size) {
    const UniqueFd fd(::memfd_create("floor", MFD_CLOEXEC));
    if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) Fail("memfd");
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) Fail("mmap");
    return data;
  }
  uint64_t size_;
  void* data_;
};

void PutLarge(const Arguments& arguments, int rounds) {
  Broker broker = Connect(arguments);
  const Bytes source(64 * kMiB);
  WarmShared floor(source.size);
  for (int i = 0; i < 4; ++i) Put(broker, source, "large");  // the arenas exist and are warm from here on
  const auto times = Interleaved(rounds, 1, {[&] { floor.CopyFrom(source); }, [&] { Put(broker, source, "large"); }});
  Print("put_64mib", {{"floor", times[0]}, {"value", times[1]}});
}

// Waits until the broker has populated memory ahead of demand again, which is the subject of this row.
void AwaitCached(Broker& broker, uint64_t bytes) {
  while (Must(broker.GetStats()).cached_bytes < bytes) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void PutFirst(const Arguments& arguments, int rounds) {
  const Bytes source(64 * kMiB);
  WarmShared floor(source.size);
  floor.CopyFrom(source);
  Broker watcher = Connect(arguments);
  std::vector<double> values, floors;
  for (int i = 0; i < rounds; ++i) {
    AwaitCached(watcher, source.size);
    Broker broker = Connect(arguments);
    double start = NowMicroseconds();
    floor.CopyFrom(source);
    floors.push_back(NowMicroseconds() - start);
    start = NowMicroseconds();
    Put(broker, source, "first");
    values.push_back(NowMicroseconds() - start);
    Must(broker.Withdraw({.name = "first", .id = 0, .generation = 0}));
  }
  Print("put_64mib_first", {{"floor", Median(floors)}, {"value", Median(values)}});
}

// Waits until the broker has populated the memory that earlier rows have requested. The broker populates it at low
// priority, and this thread yields the processor to it.
void AwaitQuiet(Broker& broker) {
  constexpr int kLooks = 10;
  uint64_t cached = 0;
  for (int same = 0; same < kLooks; ++same) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const uint64_t now = Must(broker.GetStats()).cached_bytes;
    if (now != std::exchange(cached, now)) same = 0;
  }
}

void PutSmall(const Arguments& arguments, Echo& echo, int rounds) {
  Broker broker = Connect(arguments);
  const Bytes source(4 * kKiB);
  AwaitQuiet(broker);
  for (int i = 0; i < 100; ++i) Put(broker, source, "small");
  const auto times = Interleaved(
      rounds, 200, {[&] { echo.PingPong(kAnswerBytes, kRequestBytes); }, [&] { Put(broker, source, "small"); }});
  Print("put_4kib", {{"floor", times[0]}, {"value", times[1]}});
}

void PublishEmpty(Broker& writer, const std::string& name, uint64_t size) {
  const ArraySpec spec{{2, 32, 1}, "float32", {static_cast<int64_t>(size / 4)}, {}, 0};
  const Placement placed = Must(writer.Empty({&spec, 1}));
  Must(writer.Publish(placed, {.name = name, .replace = true, .sealed = false, .structure = {}, .metadata = {}}));
}

void AcquireOf(const Arguments& arguments, Echo& echo, int rounds, const std::string& id, uint64_t size) {
  Broker writer = Connect(arguments);
  PublishEmpty(writer, id, size);
  Broker reader = Connect(arguments);
  const ShareRef ref{.name = id, .id = 0, .generation = 0};
  const Acquired kept = Must(reader.Acquire(ref));  // the arena is mapped and stays mapped
  AwaitQuiet(writer);
  const auto times = Interleaved(
      rounds, 200, {[&] { echo.PingPong(kRequestBytes, kAnswerBytes); }, [&] { Must(reader.Acquire(ref)); }});
  Print(id, {{"floor", times[0]}, {"value", times[1]}});
  Must(writer.Withdraw(ref));
}

// A process that connects for the first time: connect, session, descriptor, map, one byte read.
void AcquireFirst(const Arguments& arguments, int rounds) {
  Broker writer = Connect(arguments);
  const Bytes source(kMiB);
  Put(writer, source, "met");
  const ShareRef ref{.name = "met", .id = 0, .generation = 0};
  int sum = 0;
  const auto times = Interleaved(rounds, 3,
                                 {[&] {
                                    Echo echo(arguments.Text("echo"));
                                    for (int i = 0; i < 3; ++i) echo.PingPong(kRequestBytes, kAnswerBytes);
                                  },
                                  [&] {
                                    Broker reader({.address = arguments.Text("address"),
                                                   .ns = "bench",
                                                   .timeout = std::chrono::seconds(30),
                                                   .client = "bench"});
                                    const Acquired got = Must(reader.Acquire(ref));
                                    sum += *static_cast<const volatile char*>(got.views[0].data);
                                  }});
  if (sum == 0) Fail("acquire_first read nothing");
  Print("acquire_first", {{"floor", times[0]}, {"value", times[1]}});
}

// The same for 1 GiB, until its first byte is read; the end of the connection is not measured.
void AttachFirst(const Arguments& arguments, int rounds) {
  const uint64_t size = 1024 * kMiB;
  Broker writer = Connect(arguments);
  PublishEmpty(writer, "attached", size);
  const ShareRef ref{.name = "attached", .id = 0, .generation = 0};
  AwaitQuiet(writer);
  const UniqueFd file(::memfd_create("floor", MFD_CLOEXEC));
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) Fail("memfd");
  std::vector<double> values, floors;
  for (int i = 0; i < 3 * rounds; ++i) {
    double start = NowMicroseconds();
    {
      Echo echo(arguments.Text("echo"));
      echo.PingPong(kRequestBytes, kAnswerBytes);
      void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
      if (data == MAP_FAILED) Fail("mmap");
      static_cast<void>(*static_cast<const volatile char*>(data));
      floors.push_back(NowMicroseconds() - start);
      ::munmap(data, size);
    }
    start = NowMicroseconds();
    Broker reader(
        {.address = arguments.Text("address"), .ns = "bench", .timeout = std::chrono::seconds(30), .client = "bench"});
    const Acquired got = Must(reader.Acquire(ref));
    static_cast<void>(*static_cast<const volatile char*>(got.views[0].data));
    values.push_back(NowMicroseconds() - start);
  }
  Print("attach_first_1gib", {{"floor", Median(floors)}, {"value", Median(values)}});
  Must(writer.Withdraw(ref));
}

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) {
  using namespace arraybridge::bench;
  const Arguments arguments(argc, argv);
  const int rounds = arguments.Number("rounds", 15);
  const std::string only = arguments.Text("only", "");  // rows whose id begins so
  Echo echo(arguments.Text("echo"));
  const auto wanted = [&](std::string_view id) { return id.starts_with(only); };
  if (wanted("put_64mib_first")) PutFirst(arguments, rounds);
  if (wanted("put_64mib")) PutLarge(arguments, rounds);
  if (wanted("put_4kib")) PutSmall(arguments, echo, rounds);
  for (const auto& [id, size] : {std::pair{"acquire_4kib", 4 * kKiB}, std::pair{"acquire_1mib", kMiB},
                                 std::pair{"acquire_64mib", 64 * kMiB}, std::pair{"acquire_1gib", 1024 * kMiB}}) {
    if (wanted(id)) AcquireOf(arguments, echo, rounds, id, size);
  }
  if (wanted("acquire_first")) AcquireFirst(arguments, rounds);
  if (wanted("attach_first_1gib")) AttachFirst(arguments, rounds);
}
