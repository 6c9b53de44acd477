// SPDX-License-Identifier: Apache-2.0
#include "client/catalogue/hazard_tables.h"

#include "client/wire/codec.h"

namespace arraybridge {

HazardSlot HazardTables::Take(std::string_view ns, std::string_view name) {
  HazardTable* const table = now_.load(std::memory_order_acquire);
  if (table == nullptr || ns != ns_) return {};
  HazardSlot hold = table->Take(name);
  if (hold || !table->catalogue().closed()) return hold;
  HazardTable* closed = table;
  now_.compare_exchange_strong(closed, nullptr, std::memory_order_relaxed);
  return hold;
}

void HazardTables::Prefetch(std::string_view ns) {
  if (!wanted_ || ns != ns_ || now_.load(std::memory_order_relaxed) != nullptr) return;
  {
    const MutexLock lock(mutex_);
    if (++acquires_ < ask_with_ || tables_.size() >= kTablesMax) return;
    ask_with_ = kNever;  // until there is an answer
  }
  Ask();
}

// Sends both requests at once. Their answers arrive in this order, before the answers to later requests.
void HazardTables::Ask() {
  wire::BrowseRequest request{.namespace_ = ns_};  // the catalogue
  Status sent = lifeline_.Ask(Verb::kBrowse, wire::Encode(request),
                              [this](const Result<Answer>& answer) { HaveCatalogue(answer); });
  if (sent.ok()) {
    request.part = wire::BrowseRequest::Part::kHazardPage;
    sent =
        lifeline_.Ask(Verb::kBrowse, wire::Encode(request), [this](const Result<Answer>& answer) { HavePage(answer); });
  }
  if (!sent.ok()) Refused(sent);
}

void HazardTables::HaveCatalogue(const Result<Answer>& answer) {
  if (!answer.ok()) return;  // the request for the page fails as well
  auto mapped = ReadCatalogue::Map(answer->descriptor);
  const MutexLock lock(mutex_);
  catalogue_ = mapped.ok() ? *std::move(mapped) : nullptr;
}

void HazardTables::HavePage(const Result<Answer>& answer) {
  if (!answer.ok()) return Refused(answer.status());
  auto page = MappedHazardPage::Map(answer->descriptor);
  if (!page.ok()) return Refused(page.status());
  {
    const MutexLock lock(mutex_);
    if (catalogue_ == nullptr) {
      ask_with_ = kNever;  // the answer is not a catalogue that this client can read
      return;
    }
    tables_.push_back(std::make_unique<HazardTable>(std::move(catalogue_), *std::move(page)));
    acquires_ = 0;
    ask_with_ = kFirst;
    now_.store(tables_.back().get(), std::memory_order_release);
  }
  // The seal is optional, so the message is dropped if the broker is busy.
  static_cast<void>(lifeline_.Post(Verb::kMapped, wire::Encode(wire::MappedRequest{.hazard_page_of = ns_})));
}

void HazardTables::Refused(const Status& why) {
  const MutexLock lock(mutex_);
  catalogue_.reset();
  // a retry would fail as well
  if (why.code() == Code::kUnimplemented || why.code() == Code::kFailedPrecondition) return;
  ask_with_ = acquires_ + pause_;
  pause_ *= 2;
}

catalogue::Facts HazardTables::FindHeld(uint64_t arena, uint64_t offset, uint64_t bytes) const {
  const MutexLock lock(mutex_);
  for (const auto& table : tables_) {
    if (const catalogue::Facts facts = table->FindHeld(arena, offset, bytes); facts.share != 0) return facts;
  }
  return {};
}

uint64_t HazardTables::taken() const {
  const MutexLock lock(mutex_);
  uint64_t taken = 0;
  for (const auto& table : tables_) taken += table->taken();
  return taken;
}

}  // namespace arraybridge
