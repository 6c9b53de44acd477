// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/objects/namespace.h"

#include <sys/random.h>

#include <bit>
#include <utility>

#include "daemon/broker/objects/kept_ranges.h"
#include "proto/boundary/text.h"

namespace arraybridge::daemon {
namespace {

bool IsControl(char32_t character) {
  return character < 0x20 || (character >= 0x7F && character <= 0x9F) || character == 0x2028 || character == 0x2029;
}

struct HashKey {
  uint64_t low = 0;
  uint64_t high = 0;
  HashKey() { AB_CHECK(::getrandom(this, sizeof(*this), 0) == sizeof(*this)); }
};

// SipHash-1-3 (Aumasson, Bernstein), which Rust and Python use against chosen keys.
class SipHash13 {
 public:
  explicit SipHash13(const HashKey& key)
      : v0_(key.low ^ 0x736f6d6570736575),
        v1_(key.high ^ 0x646f72616e646f6d),
        v2_(key.low ^ 0x6c7967656e657261),
        v3_(key.high ^ 0x7465646279746573) {}

  uint64_t Of(std::string_view text) {
    const uint64_t length = text.size();
    for (; text.size() >= 8; text.remove_prefix(8)) Word(Load(text.substr(0, 8)));
    Word(Load(text) | length << 56);
    v2_ ^= 0xFF;
    for (int i = 0; i < 3; ++i) Round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  static uint64_t Load(std::string_view bytes) {
    uint64_t word = 0;
    for (size_t i = 0; i < bytes.size(); ++i) word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return word;
  }
  void Word(uint64_t word) {
    v3_ ^= word;
    Round();
    v0_ ^= word;
  }
  void Round() {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }

  uint64_t v0_;
  uint64_t v1_;
  uint64_t v2_;
  uint64_t v3_;
};

}  // namespace

size_t SecretHash::operator()(std::string_view text) const {
  static const HashKey key;
  return SipHash13(key).Of(text);
}

Status CheckName(std::string_view what, std::string_view text, uint64_t bytes_max) {
  if (text.empty()) return InvalidArgument(what, " is empty").Because("BAD_NAME");
  if (text.size() > bytes_max) {
    return InvalidArgument(what, " has ", text.size(), " bytes; at most ", bytes_max, " are allowed")
        .Because("BAD_NAME");
  }
  while (!text.empty()) {
    const char32_t character = TakeCharacter(&text);
    if (character == kBadText) return InvalidArgument(what, " is not UTF-8").Because("BAD_NAME");
    if (IsControl(character)) return InvalidArgument(what, " contains a control character").Because("BAD_NAME");
  }
  return Ok();
}

Result<Charge> Namespace::ChargeFor(uint64_t bytes, std::shared_ptr<Quota> payer) {
  auto charge = Charge::Of(quota_, bytes, std::move(payer));
  if (charge.has_value()) return *std::move(charge);
  const uint64_t used = quota_->used();
  return ResourceExhausted("namespace '", name_, "': ", bytes, " bytes exceed the quota (", used, " of ",
                           quota_->bytes(), " in use)")
      .Because("QUOTA_EXCEEDED")
      .With("namespace", name_)
      .With("wanted_bytes", std::to_string(bytes))
      .With("used_bytes", std::to_string(used))
      .With("quota_bytes", std::to_string(quota_->bytes()));
}

Share* Namespace::FindByName(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Share* Namespace::FindById(ShareId id) const {
  const auto found = shares_.find(id);
  if (found == shares_.end() || found->second->withdrawn) return nullptr;
  return found->second.get();
}

Share* Namespace::Add(std::unique_ptr<Share> share) {
  Share* const added = TryAdd(share);
  AB_CHECK(added != nullptr);
  return added;
}

Share* Namespace::TryAdd(std::unique_ptr<Share>& share) {
  Share* const added = share.get();
  if (!share->withdrawn && !by_name_.emplace(added->facts->name, added).second) return nullptr;
  // Several shares may use parts of one entry of a direct channel: only the first counts.
  const bool is_first = share->kept_in == nullptr || !share->kept_in->HasOtherRoot(share->kept_bit, *share);
  added->own_bytes = share->root == nullptr && is_first ? share->size : 0;
  share_bytes_ += added->own_bytes;
  if (!added->withdrawn) uses.Count(*added, &Share::names, true);
  shares_.emplace_hint(shares_.end(), added->facts->id, std::move(share));
  return added;
}

void Namespace::TakeName(Share& share) {
  if (share.withdrawn) return;
  share.withdrawn = true;
  uses.Count(share, &Share::names, false);
  by_name_.erase(share.facts->name);
}

std::unique_ptr<Share> Namespace::Remove(const Share& share) {
  AB_CHECK(share.withdrawn);
  share_bytes_ -= share.own_bytes;
  auto node = shares_.extract(share.facts->id);
  return std::move(node.mapped());
}

}  // namespace arraybridge::daemon
