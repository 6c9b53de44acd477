// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/patterns/reorder.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "client/lifeline/lifeline.h"

namespace arraybridge {

namespace {

// Metadata that is a tree: these bytes, and its structure (docs/guides/writing-a-client.md).
constexpr std::string_view kTree = "arraybridge.metadata\n";
constexpr std::string_view kNumber = R"({"v":)";
constexpr std::string_view kNamed = R"(["sequence",{"v":)";

std::string Fact(const Status& status, std::string_view name) {
  for (const auto& [key, value] : status.metadata()) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace

Result<Reorder> Reorder::Of(Channel results, Options options) {
  if (options.window == 0) return InvalidArgument("window is 0: state how many results may be held, at least 1");
  if (options.first == 0) return InvalidArgument("first is 0: the first frame of a channel has the sequence 1");
  if (!options.sequence_of) options.sequence_of = SequenceIn;
  return Reorder(std::move(results), std::move(options));
}

Result<Acquired> Reorder::Receive(std::optional<std::chrono::milliseconds> timeout) {
  const std::optional<Deadline> until = DeadlineAfter(timeout);
  while (!IsDue()) {
    if (until) timeout = TimeUntil(until);
    auto received = results_.Receive({.mode = options_.mode, .timeout = timeout});
    if (received.ok()) {
      AB_RETURN_IF_ERROR(Hold(*std::move(received)));
      continue;
    }
    Note(received.status());
    if (!ended_) return received.status();
  }
  if (held_.empty()) return *std::exchange(ended_, std::nullopt);
  const auto next = held_.find(expected_);
  if (next == held_.end()) return Gap();
  Acquired result = std::move(next->second);
  held_.erase(next);
  ++expected_;
  return result;
}

Status Reorder::Hold(Acquired result) {
  const auto sequence = options_.sequence_of(result);
  if (!sequence) {
    return InvalidArgument("a result in channel '", results_.name(),
                           "' states no sequence: send Reorder::MetadataOf(frame.sent.sequence) with it, or pass "
                           "sequence_of")
        .Because("NO_SEQUENCE");
  }
  if (*sequence < expected_ || !held_.emplace(*sequence, std::move(result)).second) ++dropped_;
  return Ok();
}

void Reorder::Note(const Status& failed) {
  if (failed.reason() == "CHANNEL_ENDED") ended_ = failed;
  if (failed.reason() != "SENDER_DIED" && failed.reason() != "SENDER_ABANDONED") return;
  lost_.push_back(Concat("'", Fact(failed, "client"), "' (process ", Fact(failed, "process_id"), ")"));
}

Status Reorder::Gap() {
  const uint64_t first = expected_, last = held_.begin()->first - 1;
  expected_ = last + 1;
  std::string workers;
  for (const std::string& each : std::exchange(lost_, {})) workers += (workers.empty() ? "" : ", ") + each;
  const std::string frames =
      first == last ? Concat("frame ", first, " is") : Concat("frames ", first, " to ", last, " are");
  const std::string since =
      ended_ ? std::string("their stream has ended") : Concat(held_.size(), " later results have come");
  const std::string why = workers.empty() ? "a worker was lost with them, dropped them, or is slower than window allows"
                                          : "lost with " + workers;
  return Status(Code::kDataLoss,
                Concat(frames, " missing, and ", since, ": ", why, "; the next call goes on with frame ", expected_),
                "GAP")
      .With("first", Concat(first))
      .With("last", Concat(last));
}

std::optional<uint64_t> Reorder::SequenceIn(const Acquired& result) {
  std::string_view said = result.share->metadata;
  if (!said.starts_with(kTree)) return std::nullopt;
  said.remove_prefix(kTree.size());
  const size_t named = said.find(kNamed);
  if (!said.starts_with(kNumber) && named == std::string_view::npos) return std::nullopt;
  said.remove_prefix(said.starts_with(kNumber) ? kNumber.size() : named + kNamed.size());
  uint64_t sequence = 0;
  const auto read = std::from_chars(said.data(), said.data() + said.size(), sequence);
  const bool is_whole = read.ec == std::errc() && read.ptr != said.data() + said.size() && *read.ptr == '}';
  return is_whole ? std::optional(sequence) : std::nullopt;
}

std::string Reorder::MetadataOf(uint64_t sequence) { return Concat(kTree, kNumber, sequence, "}"); }

}  // namespace arraybridge
