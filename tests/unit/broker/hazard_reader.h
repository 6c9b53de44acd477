// SPDX-License-Identifier: Apache-2.0
// A session that reads without calls. It can write any content into its hazard page.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string_view>

#include "daemon/broker/broker.h"
#include "proto/boundary/layouts/catalogue.h"
#include "proto/boundary/layouts/hazard.h"

namespace arraybridge::daemon {

class Reader {
 public:
  Reader(Broker& broker, SessionId of, std::string_view ns = "default") : session(of) {
    auto table = broker.ExportCatalogue(session, ns);
    auto page = broker.ExportHazardPage(session, ns);
    if (!table.ok() || !page.ok()) return;
    catalogue::Header header{};
    if (::pread(table->get(), &header, sizeof header, 0) != sizeof header) return;
    bytes_ = catalogue::Extent{header.capacity}.bytes();
    void* const base = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, table->get(), 0);
    table_ = {static_cast<const std::byte*>(base), {header.capacity}};
    page_ = static_cast<hazard::Page*>(
        ::mmap(nullptr, sizeof(hazard::Page), PROT_READ | PROT_WRITE, MAP_SHARED, page->get(), 0));
  }
  ~Reader() {
    if (page_ == nullptr) return;
    ::munmap(const_cast<std::byte*>(table_.base), bytes_);
    ::munmap(page_, sizeof(hazard::Page));
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::optional<catalogue::Found> Find(std::string_view name) const {
    const auto found = catalogue::Find(table_, SipHash128(table_.header().key, name));
    return found ? std::optional(found) : std::nullopt;
  }
  catalogue::Facts FactsOf(std::string_view name) const { return catalogue::Read(table_.record(Find(name)->slot)); }
  bool Hold(std::string_view name, uint32_t index = 0) {
    const auto found = Find(name);
    return found && hazard::Claim(*page_, index, found->slot, found->state, table_.record(found->slot).state);
  }
  void Clear(uint32_t index = 0) { hazard::Clear(*page_, index); }
  hazard::Page& page() { return *page_; }
  bool closed() const { return table_.header().closed != 0; }

  const SessionId session;

 private:
  uint64_t bytes_ = 0;
  catalogue::Table table_;
  hazard::Page* page_ = nullptr;
};

}  // namespace arraybridge::daemon
