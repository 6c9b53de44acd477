// SPDX-License-Identifier: Apache-2.0
// The options of record and replay.
#include <CLI/CLI.hpp>

#include "client/ctl/command_line.h"

namespace arraybridge::ctl {

void CommandLine::DeclareRecording() {
  auto* const record = AddLocal(app_, "record", "write what goes through channels into a file of MCAP; needs Python",
                                [this](const Options& options, std::ostream&) { return Record(options, record_); });
  record->add_option("CHANNEL", record_.channels, "a broadcast that drops the oldest, or the tee of a queue")
      ->required();
  record->add_option("-o,--file", record_.file, "file to create")->required();
  record->add_option("--compression", record_.compression, "none (default) or zstd");
  record->add_option("--seconds", record_.seconds, "record no longer than this");
  record->add_option("--nice", record_.nice, "lowers its priority by so much: 0 to 19; default: 10");
  record->add_flag("--foxglove", record_.foxglove, "also write images as Foxglove's RawImage, as topic CHANNEL/image");
  record->add_flag("--follow", record_.follow, "go on with later streams, until interrupted");
  record->add_flag("--replace", record_.replace, "replace the file if it exists");
  auto* const replay = AddLocal(app_, "replay", "send what was recorded into channels again; needs Python",
                                [this](const Options& options, std::ostream&) { return Replay(options, replay_); });
  replay->add_option("FILE", replay_.file, "a recording")->required();
  replay->add_option("CHANNEL", replay_.channels, "only these, by their recorded names; default: all");
  replay->add_option("--speed", replay_.speed, "2: twice as fast; inf: as fast as receivers take it; default: 1");
  replay->add_option("--from", replay_.from, "time since the first message: 500ms, 10s, 2min");
  replay->add_option("--to", replay_.to, "time since the first message; default: to the end");
  replay->add_option("--mode", replay_.mode, "of the channels: queue (default), broadcast or latest");
  replay->add_option("--wait", replay_.wait, "time for a receiver that is slow or absent; default: no limit");
  replay->add_option("--rename", replay_.renamed, "OLD=NEW, of a channel; several times")->allow_extra_args(false);
}

}  // namespace arraybridge::ctl
