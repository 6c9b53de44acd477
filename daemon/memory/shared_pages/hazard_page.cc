// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/shared_pages/hazard_page.h"

#include <sys/mman.h>

#include <utility>

namespace arraybridge::daemon {

Result<std::unique_ptr<HazardPage>> HazardPage::Create() {
  AB_ASSIGN_OR_RETURN(auto pages,
                      SharedPages::Create(sizeof(hazard::Page), PROT_READ, "arraybridge-hazard-page", "a hazard page"));
  const uint32_t version = hazard::kVersion;
  AB_RETURN_IF_ERROR(pages->Write(offsetof(hazard::Page, version), &version, sizeof version));
  return std::unique_ptr<HazardPage>(new HazardPage(std::move(pages)));
}

Result<std::unique_ptr<HazardPage>> HazardPage::Adopt(UniqueFd file) {
  AB_ASSIGN_OR_RETURN(auto pages,
                      SharedPages::Adopt(std::move(file), sizeof(hazard::Page), PROT_READ, "a hazard page"));
  if (static_cast<const hazard::Page*>(pages->base())->version != hazard::kVersion) {
    return FailedPrecondition("a stored hazard page has another layout");
  }
  if (pages->sealed()) pages->CloseFile();
  return std::unique_ptr<HazardPage>(new HazardPage(std::move(pages)));
}

Result<UniqueFd> HazardPage::Export() const {
  if (pages_->sealed()) return FailedPrecondition("this hazard page is already mapped").Because("HAZARD_PAGE_MAPPED");
  return pages_->Export(true);
}

Status HazardPage::Seal() {
  AB_RETURN_IF_ERROR(pages_->Seal());
  pages_->CloseFile();
  return Ok();
}

uint64_t HazardPage::count() const {
  uint64_t count = 0;
  ForEach([&](uint64_t) { ++count; });
  return count;
}

}  // namespace arraybridge::daemon
