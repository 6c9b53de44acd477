// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/verbs/admin.h"

#include <utility>

#include "daemon/service/wire/message_limits.h"
#include "daemon/service/wire/messages.h"

namespace arraybridge::daemon {
namespace {

NamespaceOf Meant(const v1::NamespaceRef& of) {
  return {of.namespace_(), of.has_uid() ? std::optional<uint32_t>(of.uid()) : std::nullopt};
}

Result<v1::NamespaceQuota> ToMessage(const v1::NamespaceRef& of, const Result<NamespaceQuota>& quota) {
  if (!quota.ok()) return quota.status();
  v1::NamespaceQuota message;
  *message.mutable_of() = of;
  message.set_quota_bytes(quota->quota_bytes);
  message.set_charged_bytes(quota->charged_bytes);
  message.set_set(quota->set);
  return message;
}

}  // namespace

Admin::Admin(const Config& config, Broker& broker, Verbs& verbs, AdminHooks hooks)
    : config_(config), broker_(broker), verbs_(verbs), hooks_(std::move(hooks)), admins_(config.admins) {}

void Admin::SetAdmins(AccessList admins) {
  const MutexLock lock(mutex_);
  admins_ = std::move(admins);
}

Status Admin::Check(const Peer& peer, Right right) const {
  const MutexLock lock(mutex_);
  const Right has = RightOf(admins_, peer.credentials());
  if (has >= right) return Ok();
  if (has == Right::kNone) {
    return PermissionDenied("user ", peer.uid, " is not an administrator of this broker").Because("NO_ADMINISTRATOR");
  }
  return PermissionDenied("user ", peer.uid, " may only look, not change anything").Because("READ_ONLY_ADMINISTRATOR");
}

Result<v1::ListResponse> Admin::List(const v1::ListRequest& request) { return verbs_.lists.ListEverybodys(request); }

Result<v1::NamespaceQuota> Admin::GetQuota(const v1::GetQuotaRequest& request) {
  return ToMessage(request.of(), broker_.QuotaOf(Meant(request.of())));
}

Result<v1::NamespaceQuota> Admin::SetQuota(const v1::SetQuotaRequest& request) {
  const auto bytes = request.has_bytes() ? std::optional<uint64_t>(request.bytes()) : std::nullopt;
  auto quota = ToMessage(request.of(), broker_.SetQuota(Meant(request.of()), bytes));
  if (quota.ok()) verbs_.reclaimer().sweeper().Soon();
  return quota;
}

Result<v1::EndSessionResponse> Admin::EndSession(const v1::EndSessionRequest& request) {
  AB_RETURN_IF_ERROR(verbs_.sessions.CutSession(SessionId{request.session()}, "an administrator ended it"));
  return v1::EndSessionResponse();
}

Result<v1::AdminWithdrawResponse> Admin::Withdraw(const v1::AdminWithdrawRequest& request) {
  const std::vector<ShareKey> shares = FromMessage(request.shares());
  AB_RETURN_IF_ERROR(CheckShares(config_.limits, shares));
  const auto withdrawn = broker_.Withdraw(Meant(request.of()), shares);
  verbs_.reclaimer().sweeper().Soon();  // even if one name was missing, because the others were withdrawn
  if (!withdrawn.ok()) return withdrawn.status();
  v1::AdminWithdrawResponse response;
  response.set_withdrawn(*withdrawn);
  return response;
}

Result<v1::GetRecoveryResponse> Admin::GetRecovery(const v1::GetRecoveryRequest&) {
  v1::GetServerInfoResponse info = verbs_.lists.GetServerInfo();
  v1::GetRecoveryResponse response;
  response.set_version(info.version());
  response.set_broker_id(info.broker_id());
  *response.mutable_life() = std::move(*info.mutable_life());
  for (const Recovered::Lost& lost : verbs_.lists.life().recovered.lost) {
    v1::LostShare* const message = response.add_lost();
    message->mutable_of()->set_namespace_(lost.ns);
    if (lost.ns_uid != kSharedByUsers) message->mutable_of()->set_uid(lost.ns_uid);
    message->set_name(lost.share);
    message->set_why(lost.why);
  }
  return response;
}

Result<v1::DrainResponse> Admin::Drain(const v1::DrainRequest&) {
  hooks_.drain();
  return v1::DrainResponse();
}

void Admin::Shutdown(const v1::ShutdownRequest& request, const Reply<v1::ShutdownResponse>& reply) {
  reply(v1::ShutdownResponse());
  hooks_.shut_down(request.now());
}

void Admin::Upgrade(const v1::UpgradeRequest&, const Reply<v1::UpgradeResponse>& reply) {
  v1::GetServerInfoResponse info = verbs_.lists.GetServerInfo();
  v1::UpgradeResponse response;
  response.set_version(info.version());
  response.set_broker_id(info.broker_id());
  response.set_life(info.life().number());
  hooks_.upgrade([reply, response = std::move(response)](const Status& status) {
    if (!status.ok()) return reply(status);
    reply(response);
  });
}

void Admin::Trim(const v1::TrimRequest& request, const Reply<v1::TrimResponse>& reply) {
  std::optional<Device> only;
  if (request.has_device()) {
    const v1::Device& device = request.device();
    only = DeviceOf(wire::Device{device.type(), device.id(), device.uuid()});
  }
  verbs_.reclaimer().Trim(std::move(only), [reply](const Result<uint64_t>& freed_bytes) {
    if (!freed_bytes.ok()) return reply(freed_bytes.status());
    v1::TrimResponse response;
    response.set_freed_bytes(*freed_bytes);
    reply(std::move(response));
  });
}

void Admin::Reload(const v1::ReloadRequest&, const Reply<v1::ReloadResponse>& reply) {
  hooks_.reload([reply](const Result<Reloaded>& reloaded) {
    if (!reloaded.ok()) return reply(reloaded.status());
    v1::ReloadResponse response;
    for (const std::string& key : reloaded->changed) response.add_changed(key);
    for (const std::string& key : reloaded->kept) response.add_kept(key);
    reply(std::move(response));
  });
}

void Admin::GetConfig(const v1::GetConfigRequest&, const Reply<v1::GetConfigResponse>& reply) {
  hooks_.get_config([reply](const std::vector<ConfigValue>& values) {
    v1::GetConfigResponse response;
    for (const ConfigValue& value : values) {
      v1::ConfigValue* const message = response.add_values();
      message->set_key(value.key);
      message->set_value(value.text);
      message->set_origin(value.origin);
    }
    reply(std::move(response));
  });
}

}  // namespace arraybridge::daemon
