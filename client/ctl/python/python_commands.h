// SPDX-License-Identifier: Apache-2.0
// The commands that Python executes, as `python -m arraybridge`: with the broker, the namespace and the form of the
// output that this program was told. Each prints a table or JSON.
//
// INVALID_ARGUMENT, reason USAGE: another form of the output. NOT_FOUND: there is no Python.
#pragma once

#include <string>
#include <vector>

#include "client/ctl/commands.h"

namespace arraybridge::ctl {

struct LoadWishes {
  std::vector<std::string> files;
  std::string name;  // empty: that of the first file without its ending
  bool sha256 = false;
  bool replace = false;
  std::string device;  // empty: the host
};
// Reads files of arrays into a bundle, if it is not there yet. FAILED_PRECONDITION: the command failed.
Status Load(const Options& options, const LoadWishes& wishes);

// Of record and replay, as Python reads them. Empty: the default.
struct RecordWishes {
  std::vector<std::string> channels;
  std::string file;
  std::string compression;
  std::string seconds;
  std::string nice;
  bool foxglove = false;
  bool follow = false;
  bool replace = false;
};
// Writes what goes through channels into a file of MCAP. This process becomes Python, so that signals reach it; returns
// only errors.
Status Record(const Options& options, const RecordWishes& wishes);

struct ReplayWishes {
  std::string file;
  std::vector<std::string> channels;  // empty: all
  std::string speed;
  std::string from;
  std::string to;
  std::string mode;
  std::string wait;
  std::vector<std::string> renamed;  // OLD=NEW
};
// Sends what was recorded into channels again. Becomes Python, as Record.
Status Replay(const Options& options, const ReplayWishes& wishes);

}  // namespace arraybridge::ctl
