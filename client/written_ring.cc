#include "client/written_ring.h"

#include <sys/mman.h>

#include <string_view>
#include <utility>

namespace arraybridge {

constexpr std::string_view kWhat = "a publish ring";

Result<std::unique_ptr<WrittenRing>> WrittenRing::Map(const UniqueFd& entries, const UniqueFd& bell) {
  auto page = OwnPages::Map(entries, sizeof(ring::Page), PROT_READ | PROT_WRITE, kWhat);
  if (!page.ok()) return page.status();
  auto its_bell = OwnPages::Map(bell, sizeof(ring::Bell), PROT_READ, kWhat);
  if (!its_bell.ok()) return its_bell.status();
  std::unique_ptr<WrittenRing> mapped(new WrittenRing(*std::move(page), *std::move(its_bell)));
  if (mapped->page_.version != ring::kVersion || mapped->bell_.version != ring::kVersion) {
    return FailedPrecondition("the publish ring has layout ", mapped->page_.version, ", this client writes ",
                              ring::kVersion);
  }
  return mapped;
}

WrittenRing::WrittenRing(OwnPages entries, OwnPages bell)
    : entries_(std::move(entries)),
      bell_pages_(std::move(bell)),
      page_(*static_cast<ring::Page*>(entries_.base())),
      bell_(*static_cast<const ring::Bell*>(bell_pages_.base())) {}

}  // namespace arraybridge
