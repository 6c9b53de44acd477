#include "client/written_ring.h"

#include <sys/mman.h>

#include <string_view>

#include "client/own_pages.h"

namespace arraybridge {

constexpr std::string_view kWhat = "a publish ring";

Result<std::unique_ptr<WrittenRing>> WrittenRing::Map(const UniqueFd& entries, const UniqueFd& bell) {
  std::unique_ptr<WrittenRing> mapped(new WrittenRing);
  const auto page = MapOwnPages(entries, sizeof(ring::Page), PROT_READ | PROT_WRITE, kWhat);
  if (!page.ok()) return page.status();
  mapped->page_ = static_cast<ring::Page*>(*page);
  const auto its_bell = MapOwnPages(bell, sizeof(ring::Bell), PROT_READ, kWhat);
  if (!its_bell.ok()) return its_bell.status();
  mapped->bell_ = static_cast<const ring::Bell*>(*its_bell);
  if (mapped->page_->version != ring::kVersion || mapped->bell_->version != ring::kVersion) {
    return FailedPrecondition("the publish ring has layout ", mapped->page_->version, ", this client writes ",
                              ring::kVersion);
  }
  return mapped;
}

WrittenRing::~WrittenRing() {
  if (page_ != nullptr) ::munmap(page_, sizeof(ring::Page));
  if (bell_ != nullptr) ::munmap(const_cast<ring::Bell*>(bell_), sizeof(ring::Bell));
}

}  // namespace arraybridge
