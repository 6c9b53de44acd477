#include "daemon/memory/shared_pages/holds.h"

#include <sys/mman.h>

#include <utility>

namespace arraybridge {

Result<std::unique_ptr<HoldsPage>> HoldsPage::Create() {
  auto pages = SharedPages::Create(sizeof(holds::Page), PROT_READ, "arraybridge-holds", "a hazard page");
  if (!pages.ok()) return pages.status();
  const uint32_t version = holds::kVersion;
  AB_RETURN_IF_ERROR((*pages)->Write(offsetof(holds::Page, version), &version, sizeof version));
  return std::unique_ptr<HoldsPage>(new HoldsPage(*std::move(pages)));
}

Result<UniqueFd> HoldsPage::Export() const {
  if (pages_->sealed()) return FailedPrecondition("this hazard page is already mapped").Because("HOLDS_MAPPED");
  return pages_->Export(true);
}

Status HoldsPage::Seal() {
  AB_RETURN_IF_ERROR(pages_->Seal());
  pages_->CloseFile();
  return Ok();
}

uint64_t HoldsPage::count() const {
  uint64_t count = 0;
  ForEach([&](uint64_t) { ++count; });
  return count;
}

}  // namespace arraybridge
