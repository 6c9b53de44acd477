#include "client/hold_table.h"

#include <sys/mman.h>

#include "client/own_pages.h"

namespace arraybridge {

Result<std::unique_ptr<WrittenHolds>> WrittenHolds::Map(const UniqueFd& file) {
  constexpr uint64_t kBytes = sizeof(holds::Page);
  // A child that had it could clear its parent's holds.
  const auto base = MapOwnPages(file, kBytes, PROT_READ | PROT_WRITE, "a page of holds");
  if (!base.ok()) return base.status();
  std::unique_ptr<WrittenHolds> mapped(new WrittenHolds(*static_cast<holds::Page*>(*base)));
  if (mapped->page().version != holds::kVersion) {
    return FailedPrecondition("the page of holds has layout ", mapped->page().version, ", this client writes ",
                              holds::kVersion);
  }
  return mapped;
}

WrittenHolds::~WrittenHolds() { ::munmap(&page_, sizeof page_); }

}  // namespace arraybridge
