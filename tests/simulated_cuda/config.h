// SPDX-License-Identifier: Apache-2.0
// The Config describes the simulated machine. It is a list of `key=value`, separated by semicolons or newlines, read
// from the environment variable SIMULATED_CUDA, or from the file <library>.conf beside the library, or empty.
// An unknown key ends the process, because a misspelt fault would make a test that cannot fail.
//
//   devices=2                 physical devices in the machine, 1 unless given; 0 makes cuInit answer 100
//   visible=1,0               the devices that this process sees, in order; all unless given
//   uuid=0:00112233...ff      the UUID of a physical device, 32 hexadecimal digits
//   integrated=0,1            physical devices that are part of the processor, as on Jetson: no legacy handles
//   one_memory=0              physical devices that read the host's memory by its page tables, as on Grace and GB10;
//                             registered memory has other addresses there, too
//   mig=0                     physical devices that are instances of a partitioned one: their name says so
//   memory=268435456          bytes per device
//   address_space=68719476736 bytes that one process may reserve
//   version=13000             what the driver supports
//   dir=/dev/shm/x            directory in which processes find each other's events
//   off=125,102               device attributes that read 0 and whose calls return 801
//   fail=cuMemMap:3:2         the third cuMemMap returns 2; `*` for every call, `1/20` for one in twenty at random
//                             (every later call returns a sticky code, such as 700, too)
//   seed=7                    seed of random choices
//   peers                     devices can access each other's memory
//   exclusive                 one process per device
//   own                       a process may import its own exports
//   context_for_memory        creating, exporting and importing memory demand a current context, too
//   held                      querying an event or a stream makes no progress; of another process's event, the 16th
//                             does
//   dead_events_pend          the events of a dead process neither occur nor fail, so that waits for them never end
//   guest                     as lenient as hardware, for frameworks that are not ours
//   ledger                    aborts if objects are alive when the process ends
//   report=/tmp/x             file for the counters when the process ends
//   trace                     every call to stderr
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/boundary/cuda/driver_abi.h"

namespace arraybridge::simulated {

struct Fault {
  std::string symbol;
  long nth = 0;         // from 1; 0: every call
  uint64_t one_in = 0;  // 0: use nth; otherwise one call in so many, at random
  uint32_t code = 0;
};

struct Config {
  int devices = 1;
  std::vector<int> visible;
  std::map<int, cuda::CUuuid> uuids;
  std::set<int> integrated;
  std::set<int> one_memory;
  std::set<int> mig;
  uint64_t memory = uint64_t{256} << 20;
  uint64_t address_space = uint64_t{64} << 30;
  int version = 13000;
  std::string directory;
  std::set<uint32_t> off;
  std::vector<Fault> faults;
  uint64_t seed = 1;
  bool peers = false;
  bool exclusive = false;
  bool own = false;
  bool context_for_memory = false;
  bool held = false;
  bool dead_events_pend = false;
  bool guest = false;
  bool ledger = false;
  bool trace = false;
  std::string report;

  static Config Read();
  cuda::CUuuid Uuid(int physical) const;
};

}  // namespace arraybridge::simulated
