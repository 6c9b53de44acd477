// SPDX-License-Identifier: Apache-2.0
// A Reorder restores the order of frames that several workers have processed, and tells which frames were lost with a
// worker. It is arraybridge.reorder of Python, and its workers may be written in either language.
//
//   // in each worker
//   auto frame = work.Receive({});
//   if (frame.ok()) {
//     arraybridge::Channel::SendOptions options;
//     options.metadata = arraybridge::Reorder::MetadataOf(frame->sent.sequence);
//     Log(broker.Send(done, Processed(frame->views), options).status());
//   }
//   // in the process that wants the results in order
//   auto ordered = arraybridge::Reorder::Of(*broker.OpenChannel("done", arraybridge::Channel::Role::kReceiver), {});
//   auto next = ordered->Receive(std::chrono::seconds(1));
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/channel.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// Used by one thread at a time. It holds at most `window` results in broker memory.
class Reorder {
 public:
  // The sequence of the frame that a result answers; nothing: it states none.
  using SequenceOf = std::function<std::optional<uint64_t>(const Acquired& result)>;

  struct Options {
    // The number of results that are held. More than the workers have in their hands together: a result that comes
    // after its GAP is dropped.
    size_t window = 16;
    uint64_t first = 1;  // the sequence of the first frame; that of a new channel is 1
    MapMode mode = MapMode::kShared;
    SequenceOf sequence_of{};  // null: Reorder::SequenceIn
  };
  // `results`: the receiving end of the channel into which the workers send. INVALID_ARGUMENT: `window` or `first` is
  // 0.
  static Result<Reorder> Of(Channel results, Options options);

  // The result of the next frame. Errors of Channel::Receive, such as ABORTED, SENDER_DIED. DATA_LOSS, GAP: results are
  // missing, because a worker was lost with their frames, dropped them, or is slower than `window` allows; the status's
  // metadata has `first` and `last`. INVALID_ARGUMENT, NO_SEQUENCE: a result states none, and is dropped. The next call
  // goes on after each of these.
  Result<Acquired> Receive(std::optional<std::chrono::milliseconds> timeout);

  uint64_t expected() const { return expected_; }  // the sequence of the next frame
  uint64_t dropped() const { return dropped_; }    // results that came after their GAP, or twice

  // The sequence that a result's metadata states: that of MetadataOf, and what Python sends as `metadata=sequence` or
  // as `metadata={"sequence": sequence, ...}`.
  static std::optional<uint64_t> SequenceIn(const Acquired& result);
  // The metadata of a result for the frame of this sequence.
  static std::string MetadataOf(uint64_t sequence);

 private:
  Reorder(Channel results, Options options)
      : results_(std::move(results)), options_(std::move(options)), expected_(options_.first) {}

  bool IsDue() const { return held_.contains(expected_) || held_.size() >= options_.window || ended_; }
  Status Hold(Acquired result);
  // Notes why the results end, or that a worker is lost.
  void Note(const Status& failed);
  Status Gap();

  Channel results_;
  Options options_;
  uint64_t expected_;
  uint64_t dropped_ = 0;
  std::map<uint64_t, Acquired> held_;
  std::optional<Status> ended_;    // the stream has ended, and the caller was not told yet
  std::vector<std::string> lost_;  // workers that were lost since the last gap
};

}  // namespace arraybridge
