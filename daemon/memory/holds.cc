#include "daemon/memory/holds.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "daemon/memory/memfd.h"

namespace arraybridge {
namespace {

constexpr uint64_t kBytes = sizeof(holds::Page);

}  // namespace

Result<std::unique_ptr<HoldsPage>> HoldsPage::Create() {
  auto file = CreateMemfd(kBytes, "arraybridge-holds");
  if (!file.ok()) return file.status();
  const uint32_t version = holds::kVersion;
  if (::pwrite(file->get(), &version, sizeof version, offsetof(holds::Page, version)) != sizeof version) {
    return ResourceExhausted("no memory for a page of holds: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  void* const base = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file->get(), 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("mapping a page of holds: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  // Spares a fault where memory is short; where it is not allowed, nothing is lost.
  std::ignore = ::mlock(base, kBytes);
  return std::unique_ptr<HoldsPage>(new HoldsPage(*std::move(file), *static_cast<const holds::Page*>(base)));
}

HoldsPage::~HoldsPage() { ::munmap(const_cast<holds::Page*>(&page_), kBytes); }

Result<UniqueFd> HoldsPage::Export() const {
  if (!file_.valid()) return FailedPrecondition("this page of holds is mapped already").Because("HOLDS_MAPPED");
  return ReopenMemfd(file_.get(), O_RDWR | O_NONBLOCK);
}

Status HoldsPage::Seal() {
  if (!file_.valid()) return Ok();
  const int error = AddMemfdSeals(file_.get(), F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  if (error != 0) return Internal("a page of holds cannot be sealed: ", std::strerror(error));
  file_.reset();
  return Ok();
}

uint64_t HoldsPage::count() const {
  uint64_t count = 0;
  ForEach([&](uint64_t) { ++count; });
  return count;
}

}  // namespace arraybridge
