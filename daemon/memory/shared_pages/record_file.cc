// SPDX-License-Identifier: Apache-2.0
#include "daemon/memory/shared_pages/record_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "daemon/memory/host/memfd.h"
#include "proto/boundary/shared_word.h"

namespace arraybridge::daemon {
namespace {

constexpr uint64_t kMagic = 0x314C4A4342415241;  // "ARABCJL1" in memory
constexpr uint64_t kFirstSlot = 64;              // the header has a page
constexpr uint64_t kSlotsPerReserve = 16384;     // 1 MiB
constexpr uint64_t kSlotsAhead = 1024;           // for the fixed parts of the records of one verb
constexpr uint64_t kBytes = RecordFile::kSlotsMax * RecordFile::kSlotBytes;
constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;

uint64_t Mix(uint64_t value) {
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93;
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93;
  return value ^ value >> 32;
}

}  // namespace

struct RecordFile::Header {
  uint64_t magic;
  uint32_t major;
  uint32_t minor;
  uint64_t secret;
  uint64_t used;      // shared with the next daemon: leading slots that may have a head
  uint64_t sequence;  // likewise
  std::array<uint64_t, kWords> words;
};

// `state`: a check of 48 bits, the class, the kind (0: free).
struct RecordFile::Head {
  uint64_t state;
  uint64_t sum;
  uint64_t sequence;
  uint64_t bytes;
};

Result<std::unique_ptr<RecordFile>> RecordFile::Map(UniqueFd file) {
  void* const base = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("mapping the journal: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  return std::unique_ptr<RecordFile>(new RecordFile(std::move(file), static_cast<std::byte*>(base)));
}

Result<std::unique_ptr<RecordFile>> RecordFile::Create() {
  AB_ASSIGN_OR_RETURN(auto file, CreateMemfd(kBytes, "arraybridge-journal"));
  if (::fallocate(file.get(), 0, 0, kFirstSlot * kSlotBytes) != 0) {
    return ResourceExhausted("no memory for the journal: ", std::strerror(errno)).Because("SYSTEM_MEMORY");
  }
  auto mapped = Map(std::move(file));
  if (!mapped.ok()) return mapped;
  Header& header = (*mapped)->header();
  AB_CHECK(::getrandom(&header.secret, sizeof header.secret, 0) == sizeof header.secret);
  header.major = kMajor;
  header.minor = kMinor;
  (*mapped)->used_ = (*mapped)->reserved_ = header.used = kFirstSlot;
  header.magic = kMagic;
  return mapped;
}

Result<std::unique_ptr<RecordFile>> RecordFile::Adopt(UniqueFd file) {
  struct stat found {};
  if (::fstat(file.get(), &found) != 0 || static_cast<uint64_t>(found.st_size) != kBytes) {
    return FailedPrecondition("the stored journal has another size than a journal of this version")
        .Because("OTHER_LAYOUT");
  }
  auto mapped = Map(std::move(file));
  if (!mapped.ok()) return mapped;
  const Header& header = (*mapped)->header();
  if (header.magic != kMagic) return FailedPrecondition("the stored journal is none").Because("OTHER_LAYOUT");
  if (header.major != kMajor) {
    return FailedPrecondition("the stored journal has layout ", header.major, ".", header.minor, "; this daemon reads ",
                              kMajor, ".x: start the version that wrote it, or stop it to drop what it kept")
        .Because("OTHER_LAYOUT");
  }
  (*mapped)->header().minor = std::max(header.minor, kMinor);
  return mapped;
}

RecordFile::~RecordFile() { ::munmap(base_, kBytes); }

RecordFile::Header& RecordFile::header() const { return *reinterpret_cast<Header*>(base_); }

uint32_t RecordFile::minor() const { return header().minor; }

uint64_t& RecordFile::word(size_t index) { return header().words.at(index); }

uint64_t RecordFile::StateOf(uint64_t slot, unsigned of_class, uint8_t kind) const {
  const uint64_t meaning = uint64_t{of_class} << 8 | kind;
  return Mix(header().secret + slot * 0x10000 + meaning) << 16 | meaning;
}

bool RecordFile::Read(uint64_t slot, unsigned* of_class, uint8_t* kind) const {
  const uint64_t state = Load(head(slot).state, kRelaxed);
  *of_class = static_cast<unsigned>(state >> 8 & 0xFF);
  *kind = static_cast<uint8_t>(state);
  return *of_class < kClasses && state == StateOf(slot, *of_class, *kind);
}

uint64_t RecordFile::Sum(std::string_view content, uint64_t sequence) const {
  uint64_t sum = Mix(header().secret ^ sequence ^ content.size() << 32);
  for (; content.size() >= sizeof sum; content.remove_prefix(sizeof sum)) {
    uint64_t word = 0;
    std::memcpy(&word, content.data(), sizeof word);
    sum = (sum ^ word) * 0x9FB21C651E98DF25;
    sum ^= sum >> 35;
  }
  uint64_t word = 0;
  if (!content.empty()) std::memcpy(&word, content.data(), content.size());
  return Mix(sum ^ word);
}

uint64_t RecordFile::Scan(const std::function<void(const Record&)>& visit) {
  struct stat found {};
  const bool known = ::fstat(file_.get(), &found) == 0;
  const uint64_t has_bytes = known ? static_cast<uint64_t>(found.st_blocks) * 512 : 0;
  used_ = std::clamp(Load(header().used, kRelaxed), kFirstSlot, std::max(kFirstSlot, has_bytes / kSlotBytes));
  reserved_ = used_;
  uint64_t damaged = 0;
  for (uint64_t slot = kFirstSlot; slot < used_;) {
    unsigned of_class = 0;
    uint8_t kind = 0;
    if (!Read(slot, &of_class, &kind) || slot + (uint64_t{1} << of_class) > used_) {
      // The bytes of a lost record are skipped, slot by slot, up to the next head.
      if (Load(head(slot).state, kRelaxed) != 0) ++damaged;
      while (++slot < used_ && !Read(slot, &of_class, &kind)) continue;
      continue;
    }
    const uint64_t slots = uint64_t{1} << of_class;
    const Head& its = head(slot);
    const uint64_t bytes = its.bytes;
    const auto place = static_cast<Place>(slot);
    if (kind != 0 && bytes <= slots * kSlotBytes - sizeof(Head)) {
      const std::string_view content(reinterpret_cast<const char*>(&its + 1), bytes);
      if (Sum(content, its.sequence) == its.sum) {
        ++records_;
        visit({place, kind, its.sequence, content});
        slot += slots;
        continue;
      }
    }
    if (kind != 0) {
      ++damaged;
      Store(head(slot).state, StateOf(slot, of_class, 0), kRelease);
    }
    free_.at(of_class).push_back(place);
    slot += slots;
  }
  return damaged;
}

// Without the memory the first write into a page could raise SIGBUS.
bool RecordFile::Extend(uint64_t slots) {
  if (used_ + slots <= reserved_) return true;
  const uint64_t more = std::max(slots, kSlotsPerReserve);
  if (reserved_ + more > kSlotsMax) return false;
  const auto from = static_cast<off_t>(reserved_ * kSlotBytes);
  if (::fallocate(file_.get(), 0, from, static_cast<off_t>(more * kSlotBytes)) != 0) return false;
  reserved_ += more;
  return true;
}

// A record may need twice the slots that its bytes fill.
bool RecordFile::Reserve(uint64_t bytes) { return Extend(kSlotsAhead + 2 * bytes / kSlotBytes); }

RecordFile::Place RecordFile::Take(unsigned of_class) {
  std::vector<Place>& free = free_.at(of_class);
  if (!free.empty()) {
    const Place place = free.back();
    free.pop_back();
    return place;
  }
  const uint64_t slots = uint64_t{1} << of_class;
  if (!Extend(slots)) return 0;
  const uint64_t slot = used_;
  // The head is free before `used` covers it, so that a scan always finds the length of a record.
  Store(head(slot).state, StateOf(slot, of_class, 0), kRelease);
  used_ += slots;
  Store(header().used, used_, kRelease);
  return static_cast<Place>(slot);
}

RecordFile::Place RecordFile::Put(uint8_t kind, std::string_view content) {
  const uint64_t slots = (content.size() + sizeof(Head) + kSlotBytes - 1) / kSlotBytes;
  const auto of_class = static_cast<unsigned>(std::bit_width(slots - 1));
  if (of_class >= kClasses) return 0;
  const Place place = Take(of_class);
  if (place == 0) return 0;
  Head& head = this->head(place);
  if (!content.empty()) std::memcpy(&head + 1, content.data(), content.size());
  head.sequence = ++header().sequence;
  head.bytes = content.size();
  head.sum = Sum(content, head.sequence);
  Store(head.state, StateOf(place, of_class, kind), kRelease);
  ++records_;
  return place;
}

void RecordFile::Erase(Place place) {
  if (place == 0) return;
  unsigned of_class = 0;
  uint8_t kind = 0;
  AB_CHECK(Read(place, &of_class, &kind) && kind != 0);
  Store(head(place).state, StateOf(place, of_class, 0), kRelease);
  free_.at(of_class).push_back(place);
  --records_;
}

RecordFile::Place RecordFile::Replace(Place place, uint8_t kind, std::string_view content) {
  const Place fresh = Put(kind, content);
  if (fresh == 0) return place;
  Erase(place);
  return fresh;
}

}  // namespace arraybridge::daemon
