// SPDX-License-Identifier: Apache-2.0
#include "client/catalogue/hazard_table.h"

#include <sys/mman.h>

#include <utility>

namespace arraybridge {

Result<std::unique_ptr<MappedHazardPage>> MappedHazardPage::Map(const UniqueFd& file) {
  // SharedMapping keeps the page from children, which could clear their parent's slots.
  AB_ASSIGN_OR_RETURN(auto pages,
                      SharedMapping::Map(file, sizeof(hazard::Page), PROT_READ | PROT_WRITE, "a hazard page"));
  std::unique_ptr<MappedHazardPage> mapped(new MappedHazardPage(std::move(pages)));
  if (mapped->page().version != hazard::kVersion) {
    return FailedPrecondition("the hazard page has layout ", mapped->page().version, ", this client writes ",
                              hazard::kVersion);
  }
  return mapped;
}

}  // namespace arraybridge
