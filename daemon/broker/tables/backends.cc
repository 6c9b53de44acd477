// SPDX-License-Identifier: Apache-2.0
#include "daemon/broker/tables/backends.h"

#include <algorithm>
#include <set>
#include <string>

namespace arraybridge::daemon {
namespace {

bool IsMeant(const Device& wanted, const Device& served) {
  if (wanted.type != served.type) return false;
  return wanted.uuid.empty() ? wanted.id == served.id : wanted.uuid == served.uuid;
}

std::string NameOf(const Device& device) {
  if (device.type == kDeviceCpu && device.id == 0) return "CPU";
  if (!device.uuid.empty()) return device.uuid;
  return Concat("type ", device.type, ", id ", device.id);
}

void Append(std::string& list, std::string_view name) {
  if (!list.empty()) list += ", ";
  list += name;
}

bool Serves(const MemoryBackend& backend, const Device& device) {
  const std::vector<Device> devices = backend.devices();
  return std::ranges::find(devices, device) != devices.end();
}

}  // namespace

Result<Backends::Served> Backends::For(const Peer& peer, const Device& device) const {
  for (MemoryBackend* const backend : all_) {
    for (const Device& served : backend->devices()) {
      if (!IsMeant(device, served) || !peer.Opens(backend->kind())) continue;
      if (!peer.Sees(served)) return peer.CannotSee("the requested device", served);
      return Served{backend, served};
    }
  }
  std::string kinds;
  std::set<std::string> devices;  // a device with two memory kinds is listed once
  for (const MemoryBackend* const backend : all_) {
    for (const Device& served : backend->devices()) {
      devices.insert(NameOf(served));
      if (IsMeant(device, served)) Append(kinds, NameOf(backend->kind()));
    }
  }
  if (!kinds.empty()) return peer.CannotOpen("device " + NameOf(device), kinds);
  std::string listed;
  for (const std::string& name : devices) Append(listed, name);
  return InvalidArgument("no device ", NameOf(device), "; there are: ", listed).Because("UNKNOWN_DEVICE");
}

uint64_t Backends::CapacityBytes() const {
  std::vector<Device> counted;
  uint64_t capacity = 0;
  for (const MemoryBackend* backend : all_) {
    for (const Device& device : backend->devices()) {
      if (std::ranges::find(counted, device) != counted.end()) continue;
      counted.push_back(device);
      capacity += backend->usage(device).capacity_bytes;
    }
  }
  return capacity;
}

uint64_t Backends::CapacityBytes(const Device& device) const {
  const auto found = std::ranges::find_if(all_, [&](const MemoryBackend* backend) { return Serves(*backend, device); });
  AB_CHECK(found != all_.end());
  return (*found)->usage(device).capacity_bytes;
}

DeviceFacts& FactsOf(const Device& device, std::vector<DeviceFacts>& facts) {
  const auto known = std::ranges::find(facts, device, &DeviceFacts::device);
  if (known != facts.end()) return *known;
  facts.push_back({.device = device, .kinds = {}, .refused = {}});
  return facts.back();
}

std::vector<DeviceFacts> Backends::Facts() const {
  std::vector<DeviceFacts> facts;
  for (const MemoryBackend* backend : all_) {
    for (const Device& device : backend->devices()) {
      DeviceFacts& served = FactsOf(device, facts);
      served.kinds.push_back(backend->kind());
      const MemoryBackend::Usage usage = backend->usage(device);
      served.capacity_bytes = usage.capacity_bytes;
      served.allocated_bytes = usage.allocated_bytes;
      served.cached_bytes = usage.cached_bytes;
    }
    for (const MemoryBackend::Refusal& refusal : backend->refusals()) {
      DeviceFacts& refused = FactsOf(refusal.device, facts);
      refused.refused.push_back({backend->kind(), refusal.why, refusal.cause});
      refused.out_of_service = refused.out_of_service || refusal.cause == RefusalCause::kFailed;
    }
  }
  return facts;
}

Result<uint64_t> Backends::Trim(const std::optional<Device>& only) const {
  uint64_t freed = 0;
  bool served = !only.has_value();
  for (MemoryBackend* const backend : all_) {
    if (only && !Serves(*backend, *only)) continue;
    served = true;
    freed += backend->Trim();
  }
  if (!served) return NotFound("the broker does not serve this device").Because("NO_SUCH_DEVICE");
  return freed;
}

}  // namespace arraybridge::daemon
