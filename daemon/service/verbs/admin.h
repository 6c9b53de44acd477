// SPDX-License-Identifier: Apache-2.0
// Admin serves the requests of administrators: one function for each request, like Verbs, for a door that identifies
// the caller. Work that belongs to the main thread (configuration, shutdown) is passed to it.
#pragma once

#include <functional>
#include <vector>

#include "arraybridge/v1/admin.pb.h"
#include "daemon/broker/broker.h"
#include "daemon/config/config.h"
#include "daemon/service/verbs/verbs.h"
#include "proto/boundary/mutex.h"
#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// Functions of main. Each may answer on any thread, once, or drop its reply if the daemon shuts down first.
struct AdminHooks {
  std::function<void(std::function<void(Result<Reloaded>)> reply)> reload;
  std::function<void(std::function<void(std::vector<ConfigValue>)> reply)> get_config;
  std::function<void()> drain;
  std::function<void(bool now)> shut_down;
  // FAILED_PRECONDITION, NO_HOLDER: nothing has changed. Otherwise the daemon ends after the reply.
  std::function<void(std::function<void(Status)> reply)> upgrade;
};

// Thread-safe.
class Admin {
 public:
  template <class Message>
  using Reply = std::function<void(Result<Message>)>;

  // All arguments must outlive this object.
  Admin(const Config& config, Broker& broker, Verbs& verbs, AdminHooks hooks);

  // Replaces the list of administrators.
  void SetAdmins(AccessList admins) AB_EXCLUDES(mutex_);
  // PERMISSION_DENIED unless this peer has the right.
  Status Check(const Peer& peer, Right right) const AB_EXCLUDES(mutex_);

  Result<v1::ListResponse> List(const v1::ListRequest& request);
  Result<v1::NamespaceQuota> GetQuota(const v1::GetQuotaRequest& request);
  Result<v1::NamespaceQuota> SetQuota(const v1::SetQuotaRequest& request);
  Result<v1::EndSessionResponse> EndSession(const v1::EndSessionRequest& request);
  Result<v1::AdminWithdrawResponse> Withdraw(const v1::AdminWithdrawRequest& request);
  Result<v1::GetRecoveryResponse> GetRecovery(const v1::GetRecoveryRequest& request);
  Result<v1::DrainResponse> Drain(const v1::DrainRequest& request);
  // Shuts down after the answer.
  void Shutdown(const v1::ShutdownRequest& request, const Reply<v1::ShutdownResponse>& reply);
  void Upgrade(const v1::UpgradeRequest& request, const Reply<v1::UpgradeResponse>& reply);
  void Trim(const v1::TrimRequest& request, const Reply<v1::TrimResponse>& reply);
  void Reload(const v1::ReloadRequest& request, const Reply<v1::ReloadResponse>& reply);
  void GetConfig(const v1::GetConfigRequest& request, const Reply<v1::GetConfigResponse>& reply);

 private:
  const Config& config_;
  Broker& broker_;
  Verbs& verbs_;
  const AdminHooks hooks_;
  mutable Mutex mutex_;
  AccessList admins_ AB_GUARDED_BY(mutex_);
};

}  // namespace arraybridge::daemon
