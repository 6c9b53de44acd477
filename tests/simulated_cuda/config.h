// The Config says what machine is simulated. It is a list of `key=value`, separated by semicolons or line ends, read
// from the environment variable SIMULATED_CUDA, else from the file <library>.conf beside the library, else empty.
// An unknown key ends the process: a misspelt fault would be a test that cannot fail.
//
//   devices=2                 physical devices in the machine, 1 unless given; 0 makes cuInit answer 100
//   visible=1,0               which of them this process sees, in which order; all unless given
//   uuid=0:00112233...ff      the UUID of a physical device, 32 hexadecimal digits
//   integrated=0,1            physical devices that are part of the processor, as on Jetson: no legacy handles
//   mig=0                     physical devices that are instances of a partitioned one: their name says so
//   memory=268435456          bytes per device
//   address_space=68719476736 bytes that one process may reserve
//   version=13000             what the driver supports
//   dir=/dev/shm/x            where processes find each other's events
//   off=125,102               device attributes that read 0, and whose calls answer 801
//   fail=cuMemMap:3:2         the third cuMemMap answers 2; `*` for every one, `1/20` for one in twenty at random
//                             (a sticky code, as 700, is then every later call's answer)
//   seed=7                    of what is random
//   peers                     devices reach each other's memory
//   exclusive                 one process per device
//   own                       a process may import what it exported itself
//   held                      asking an event or a stream whether it is done never brings it further
//   guest                     as lenient as hardware is, for frameworks that are not ours
//   ledger                    live objects when the process ends abort it
//   report=/tmp/x             where counters are written when the process ends
//   trace                     every call to stderr
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/boundary/driver_abi.h"

namespace arraybridge::simulated {

struct Fault {
  std::string symbol;
  long nth = 0;         // from 1; 0: every call
  uint64_t one_in = 0;  // 0: by nth; else at random
  uint32_t code = 0;
};

struct Config {
  int devices = 1;
  std::vector<int> visible;
  std::map<int, cuda::CUuuid> uuids;
  std::set<int> integrated;
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
  bool held = false;
  bool guest = false;
  bool ledger = false;
  bool trace = false;
  std::string report;

  static Config Read();
};

}  // namespace arraybridge::simulated
