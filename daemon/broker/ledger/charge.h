// SPDX-License-Identifier: Apache-2.0
// A Charge is the receipt for reserved quota. It exists exactly as long as the bytes are reserved, so quota can neither
// leak nor be returned twice. The bytes count in the quota of a namespace and in the total of their user.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace arraybridge::daemon {

// The limit and the use of a namespace's bytes. Thread-safe: a Charge is destroyed together with its arena, outside any
// lock.
class Quota {
 public:
  explicit Quota(uint64_t bytes) : bytes_(bytes) {}

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // A limit below the current use takes nothing away, but grants nothing more.
  void Change(uint64_t bytes) { bytes_.store(bytes, std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_acquire); }
  uint64_t charges() const { return charges_.load(std::memory_order_acquire); }

 private:
  friend class Charge;
  bool Take(uint64_t bytes) {
    const uint64_t most = this->bytes();
    uint64_t used = used_.load(std::memory_order_relaxed);
    while (used <= most && bytes <= most - used) {
      if (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_acq_rel)) continue;
      charges_.fetch_add(1, std::memory_order_acq_rel);
      return true;
    }
    return false;
  }
  void Add(uint64_t bytes) {
    used_.fetch_add(bytes, std::memory_order_acq_rel);
    charges_.fetch_add(1, std::memory_order_acq_rel);
  }
  void Return(uint64_t bytes) {
    charges_.fetch_sub(1, std::memory_order_acq_rel);
    used_.fetch_sub(bytes, std::memory_order_acq_rel);  // last, because a quota without use may be destroyed
  }

  std::atomic<uint64_t> bytes_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> charges_{0};
};

class Charge {
 public:
  // nullopt if the quota has no room for `bytes`. `payer`: the total of the user; null: no total is kept.
  static std::optional<Charge> Of(std::shared_ptr<Quota> quota, uint64_t bytes,
                                  std::shared_ptr<Quota> payer = nullptr) {
    if (!quota->Take(bytes)) return std::nullopt;
    if (payer == nullptr || payer->Take(bytes)) return Charge(std::move(quota), std::move(payer), bytes);
    quota->Return(bytes);
    return std::nullopt;
  }
  // Of bytes that are in use already, even beyond a limit that has changed.
  static Charge Again(std::shared_ptr<Quota> quota, uint64_t bytes, std::shared_ptr<Quota> payer) {
    quota->Add(bytes);
    payer->Add(bytes);
    return {std::move(quota), std::move(payer), bytes};
  }
  Charge(Charge&& other) noexcept
      : quota_(std::move(other.quota_)), payer_(std::move(other.payer_)), bytes_(other.bytes_) {}
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  Charge& operator=(Charge&&) = delete;
  ~Charge() {
    if (quota_ != nullptr) quota_->Return(bytes_);
    if (payer_ != nullptr) payer_->Return(bytes_);
  }

  uint64_t bytes() const { return bytes_; }

 private:
  Charge(std::shared_ptr<Quota> quota, std::shared_ptr<Quota> payer, uint64_t bytes)
      : quota_(std::move(quota)), payer_(std::move(payer)), bytes_(bytes) {}

  std::shared_ptr<Quota> quota_;
  std::shared_ptr<Quota> payer_;
  const uint64_t bytes_;
};

}  // namespace arraybridge::daemon
