// PinLimits decides which sessions keep too many withdrawn bytes from reuse. Such a session must end: its bytes are
// missing to the users who made them, and no other process can give them back.
//
// limits.pinned_bytes_per_session is for one session: the bytes in its hazard slots, and the bytes of other users that
// it leases. limits.pinned_bytes_per_uid is for all sessions of a user: the bytes of other users in their hazard slots
// and leases, each share once. A user may keep one share of any size, and several as far as the limit goes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "daemon/broker/arenas/backends.h"
#include "daemon/broker/calls.h"
#include "daemon/broker/flags.h"
#include "daemon/broker/quota/accounts.h"
#include "daemon/broker/quota/pins.h"
#include "daemon/broker/sessions/sessions.h"
#include "daemon/config/config.h"

namespace arraybridge {

struct Session;
struct Share;

// Not thread-safe: the broker's lock guards it.
class PinLimits {
 public:
  // All arguments outlive it.
  PinLimits(const Config& config, const Backends& backends, Accounts& accounts, Flags& flags)
      : config_(config), backends_(backends), accounts_(accounts), flags_(flags) {}

  // The session has got, or given back, a lease of the share.
  void Leased(Session& session, Share& share);
  void Released(Session& session, Share& share);
  // The share has just lost its name.
  void Withdrawn(const Share& share);

  // The pins of the session, or of the user's account, have grown.
  void Check(Session& session);
  void CheckUser(uint32_t uid);
  // The session holds nothing any more.
  void Forget(const Session& session);

  // The sessions that must end. Each is returned once; of a user's sessions the one that keeps most, and the next one
  // only if the user still keeps too much when that one holds nothing any more.
  std::vector<OverLimit> Take(const Sessions::Table& sessions);

  uint64_t BytesOfSessionMax(const Device& device) const;

 private:
  void Pin(Session& session, const Share& share, bool is_first_of_user);
  std::optional<PinnedIn> Exceeded(uint32_t uid, const Pins& pinned) const;
  void Choose(Session& session, std::string_view limit);

  const Config& config_;
  const Backends& backends_;
  Accounts& accounts_;
  Flags& flags_;
  std::vector<OverLimit> chosen_;
  std::set<uint32_t> users_;  // that seem to keep too much
};

}  // namespace arraybridge
