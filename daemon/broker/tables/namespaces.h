// SPDX-License-Identifier: Apache-2.0
// Namespaces holds all namespaces with shares, channels or charges, and the quotas that administrators set.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/broker/ledger/flags.h"
#include "daemon/broker/objects/calls.h"
#include "daemon/broker/objects/namespace.h"
#include "daemon/broker/objects/rights.h"
#include "daemon/broker/tables/accounts.h"
#include "daemon/broker/tables/backends.h"
#include "daemon/broker/tables/hazards.h"
#include "daemon/broker/tables/journal.h"
#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Not thread-safe: the broker's lock guards it.
class Namespaces {
 public:
  using Table = std::map<NamespaceKey, std::unique_ptr<Namespace>>;  // keys view the names of their values

  // All arguments outlive the table.
  Namespaces(const Config& config, const Backends& backends, const Rights& rights, Accounts& accounts, Hazards& hazards,
             Flags& flags, Journal& journal);

  Namespace* Find(const NamespaceKey& key) const;  // null: it does not exist
  // Makes the namespace for this user if there is none. RESOURCE_EXHAUSTED: limits.namespaces, of which
  // one user may have a part.
  Result<Namespace*> FindOrMake(const NamespaceKey& key, uint32_t maker_uid);
  const Table& all() const { return all_; }
  void DropUnused();
  // Takes the dropped namespaces; the caller destroys them without the lock. Slow: catalogues are unmapped.
  std::vector<std::unique_ptr<Namespace>> TakeDropped() { return std::exchange(dropped_, {}); }

  // The namespace that an administrator names. INVALID_ARGUMENT: there are several, or none.
  Result<NamespaceKey> MeantBy(const NamespaceOf& of) const;
  NamespaceQuota QuotaAt(const NamespaceKey& key) const;
  // nullopt: the configured quota. RESOURCE_EXHAUSTED: limits.namespaces.
  Result<NamespaceQuota> SetQuota(const NamespaceKey& key, std::optional<uint64_t> bytes);
  void RestoreQuota(uint32_t uid, std::string ns, uint64_t bytes, uint32_t record) {
    set_quotas_[{uid, std::move(ns)}] = {bytes, record};
  }
  uint64_t QuotaBytes(const NamespaceKey& key) const;
  // Applies changed configured quotas.
  void AdoptQuotas();

 private:
  Status CheckRoom(const NamespaceKey& key, uint32_t maker_uid) const;

  const Config& config_;
  const Backends& backends_;
  const Rights& rights_;
  Accounts& accounts_;
  Hazards& hazards_;
  Flags& flags_;
  Journal& journal_;
  struct SetQuotaTo {
    uint64_t bytes = 0;
    uint32_t record = 0;  // in the journal
  };
  std::map<std::pair<uint32_t, std::string>, SetQuotaTo> set_quotas_;  // at most limits.namespaces
  Table all_;
  std::vector<std::unique_ptr<Namespace>> dropped_;
};

}  // namespace arraybridge::daemon
