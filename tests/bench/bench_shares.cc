// SPDX-License-Identifier: Apache-2.0
// Many idle shares: the daemon's memory for each, and whether acquiring one becomes slower.
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include <arraybridge/broker.h>

#include "tests/bench/support.h"

namespace arraybridge::bench {
namespace {

// Anonymous memory of the daemon in bytes; the shares' own bytes are shared memory and do not count.
double AnonymousBytes(int process_id) {
  std::ifstream status("/proc/" + std::to_string(process_id) + "/status");
  for (std::string word; status >> word;) {
    if (word != "RssAnon:") continue;
    double kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  Fail("the daemon's memory cannot be read");
}

std::string NameOf(int i) { return "idle/" + std::to_string(i); }

void PublishOne(Broker& broker, int i) {
  const ArraySpec spec{{2, 32, 1}, "float32", {64}, {}, 0};
  const Placement placed = Must(broker.Empty({&spec, 1}));
  Must(broker.Publish(placed, {.name = NameOf(i), .replace = false, .sealed = false, .structure = {}, .metadata = {}}));
}

void Run(const Arguments& arguments) {
  Broker broker({.address = arguments.Text("address"),
                 .ns = "idle",
                 .timeout = std::chrono::seconds(60),
                 .client = "bench",
                 .catalogue = false});
  const int daemon = arguments.Number("daemon", 0);
  const int most = arguments.Number("shares", 100000);
  Echo echo(arguments.Text("echo"));
  PublishOne(broker, 0);
  const double before = AnonymousBytes(daemon);
  int published = 1;
  for (int count = 1000; count <= most; count *= 10) {
    for (; published < count; ++published) PublishOne(broker, published);
    const double each = (AnonymousBytes(daemon) - before) / count;
    uint32_t random = 1;
    const Acquired kept = Must(broker.Acquire({.name = NameOf(0), .id = 0, .generation = 0}));
    const auto times = Interleaved(
        9, 200,
        {[&] { echo.PingPong(48, 110); },
         [&] {
           random = random * 1664525u + 1013904223u;
           Must(broker.Acquire(
               {.name = NameOf(static_cast<int>(random % static_cast<uint32_t>(count))), .id = 0, .generation = 0}));
         }});
    Print("share_bytes_" + std::to_string(count), {{"value", each}, {"acquire", times[1]}, {"floor", times[0]}});
  }
}

}  // namespace
}  // namespace arraybridge::bench

int main(int argc, char** argv) { arraybridge::bench::Run(arraybridge::bench::Arguments(argc, argv)); }
