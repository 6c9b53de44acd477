// SPDX-License-Identifier: Apache-2.0
#include "client/lifeline/outcomes.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "client/wire/codec.h"

namespace arraybridge {

std::optional<Outcomes::Key> Outcomes::Key::Of(const Status& status) {
  const auto& metadata = status.metadata();
  const auto found = std::ranges::find(metadata, Lifeline::kRequestKey, &Status::Metadata::value_type::first);
  if (found == metadata.end()) return std::nullopt;
  const std::string& text = found->second;
  Key key;
  const auto nonce = std::from_chars(text.data(), text.data() + text.size(), key.nonce);
  if (nonce.ec != std::errc() || nonce.ptr == text.data() + text.size() || *nonce.ptr != '/') return Key{};
  std::from_chars(nonce.ptr + 1, text.data() + text.size(), key.request);
  return key;
}

Outcomes::Entry& Outcomes::At(const Key& key) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found != entries_.end()) return *found;
  if (entries_.size() == kRememberedMax) entries_.pop_front();
  return entries_.emplace_back(Entry{.key = key});
}

void Outcomes::Expect(const Status& why, Share expected) {
  const auto key = Key::Of(why);
  if (!key) return;
  const MutexLock lock(mutex_);
  At(*key).expected = std::move(expected);
}

void Outcomes::Answered(const Key& key, Verb verb, const Result<Answer>& answer) {
  if (verb != Verb::kPublish && verb != Verb::kWithdraw) return;
  Outcome outcome{.status = answer.status(), .share = {}};
  if (answer.ok() && verb == Verb::kPublish) {
    const auto published = codec::Read<wire::PublishResponse>(answer->payload);
    if (!published.ok()) outcome.status = published.status();
    if (published.ok()) {
      outcome.share.emplace();
      outcome.share->id = published->share;
      outcome.share->name = published->name;
      outcome.share->generation = published->generation;
      outcome.share->immutability = codec::ImmutabilityOf(published->immutability);
    }
  }
  const MutexLock lock(mutex_);
  At(key).outcome = std::move(outcome);
}

std::optional<Outcome> Outcomes::Find(const Key& key) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end() || !found->outcome) return std::nullopt;
  Outcome outcome = *found->outcome;
  if (!outcome.share || !found->expected) return outcome;
  const Share reported = *std::move(outcome.share);
  outcome.share = found->expected;
  outcome.share->id = reported.id;
  outcome.share->name = reported.name;
  outcome.share->generation = reported.generation;
  outcome.share->immutability = reported.immutability;
  return outcome;
}

}  // namespace arraybridge
