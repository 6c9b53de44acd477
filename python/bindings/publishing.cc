// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/publishing.h"

#include <arraybridge/born/keep_writing.h>

#include <optional>
#include <utility>

namespace arraybridge::python {

namespace {

// A note on a copy ("torch place: not in memory of this namespace"), with the reason if it is another one.
std::string NoteOfCopy(const std::string& note, std::string_view why) {
  const std::string start = note.substr(0, note.find(": "));
  if (why == "APART") return start + ": not in one share";
  if (why == "LAYOUT") return start + ": layout: not contiguous, or not aligned";
  if (why == "WRITTEN") return start + ": written since it was received";
  if (why == "NOT_FORWARDED") return start + ": its share cannot be used here";
  if (why == "WRITTEN_ON") return start + ": its maker goes on writing it";
  return note;
}

std::optional<Placement> InPlace(Broker& broker, std::span<const View> views, const PutOptions& options,
                                 std::string_view* why) {
  if (options.publish.sealed) return std::nullopt;
  auto there = broker.PlacementOf(views, why, !options.keep_writing);
  if (!there || !options.keep_writing || KeepWriting(*there)) return there;
  *why = "WRITTEN_ON";
  return std::nullopt;
}

}  // namespace

Result<PutArrays> PublishArrays(Broker& broker, std::span<const View> views, std::string name,
                                const PutOptions& options) {
  Broker::PublishOptions named = options.publish;
  named.name = std::move(name);
  std::string_view why;
  if (const auto there = InPlace(broker, views, options, &why)) {
    const bool in_place = !there->forward();
    named.note = in_place ? options.note_in_place : options.note_forward;
    auto share = broker.Publish(*there, named);
    if (share.ok()) return PutArrays{*std::move(share), in_place && !options.keep_writing};
    if (share.status().reason() == "NOT_FORWARDED") why = "NOT_FORWARDED";
    // Another thread has published the arrays that were born there, or has forked.
    if (why.empty() && share.status().reason() != "PLACEMENT_PUBLISHED") return share.status();
  }
  named.forward = false;
  named.note = NoteOfCopy(options.publish.note, why);
  AB_ASSIGN_OR_RETURN(auto share, broker.Put(views, named));
  return PutArrays{std::move(share), false};
}

}  // namespace arraybridge::python
