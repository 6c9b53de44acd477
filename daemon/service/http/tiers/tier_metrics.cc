// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/http/tiers/tier_metrics.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "proto/boundary/text.h"

namespace arraybridge::daemon {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(MoveKind::kLast) + 1> kMoves = {"out", "in", "keep"};

std::string HeadOf(std::string_view name, std::string_view help) {
  const std::string_view type = name.ends_with("_total") ? "counter" : "gauge";
  return fmt::format("# HELP arraybridge_tier_{0} {1}\n# TYPE arraybridge_tier_{0} {2}\n", name, help, type);
}

std::string Only(std::string_view name, std::string_view help, uint64_t value) {
  return HeadOf(name, help) + fmt::format("arraybridge_tier_{} {}\n", name, value);
}

template <class Number>
std::string EachMove(std::string_view name, std::string_view help, const TierNumbers& tier, Number number) {
  std::string text = HeadOf(name, help);
  for (size_t i = 0; i < kMoves.size(); ++i) {
    text += fmt::format("arraybridge_tier_{}{{move=\"{}\"}} {}\n", name, kMoves[i], number(tier.moves[i]));
  }
  return text;
}

std::string Ends(const TierNumbers& tier) {
  using Moves = TierNumbers::Moves;
  std::string text = HeadOf("moves_total", "Moves of shares to files and back, by their end.");
  for (size_t i = 0; i < kMoves.size(); ++i) {
    for (const auto& [end, number] :
         {std::pair{"done", &Moves::done}, {"refused", &Moves::refused}, {"failed", &Moves::failed}}) {
      text += fmt::format("arraybridge_tier_moves_total{{move=\"{}\",end=\"{}\"}} {}\n", kMoves[i], end,
                          tier.moves[i].*number);
    }
  }
  return text;
}

// The reason is the daemon's own text with the system's name of an error.
std::string Off(const TierNumbers& tier) {
  std::string reason;
  for (const char letter : Printable(tier.off)) {
    if (letter == '\\' || letter == '"') reason += '\\';
    reason += letter;
  }
  const std::string label = reason.empty() ? "" : fmt::format("{{reason=\"{}\"}}", reason);
  return HeadOf("off", "1 after the disk failed, until a restart; the label says why. 0: files are written.") +
         fmt::format("arraybridge_tier_off{} {}\n", label, reason.empty() ? 0 : 1);
}

}  // namespace

std::string TierMetrics(const TierNumbers& tier) {
  using Moves = TierNumbers::Moves;
  return Only("bytes", "Bytes of shares in files.", tier.bytes) +
         Only("bytes_max", "Maximum of these bytes; 0: the broker has no directory for files.", tier.bytes_max) +
         Only("files", "Files of shares.", tier.files) + Off(tier) + Ends(tier) +
         EachMove("moved_bytes_total", "Bytes of shares that were moved.", tier,
                  [](const Moves& moves) { return moves.bytes; }) +
         EachMove("move_seconds_total", "Time of these moves.", tier,
                  [](const Moves& moves) { return std::chrono::duration<double>(moves.took).count(); }) +
         Only("damaged_files_total", "Files that were changed, cut or removed.", tier.damaged_total);
}

}  // namespace arraybridge::daemon
