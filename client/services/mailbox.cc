// SPDX-License-Identifier: Apache-2.0
#include "client/services/mailbox.h"

#include <array>
#include <cstdint>
#include <set>

#include <sys/random.h>

namespace arraybridge::services {

namespace {

constexpr size_t kNameBytesMax = 128;
}  // namespace

const View& Nothing() {
  static const View* const nothing = new View(*Describe(nullptr, {1, 8, 1}, {0}, {}, {}, true, nullptr));
  return *nothing;
}

std::string ChannelOf(std::string_view service, std::string_view place, std::string_view owner) {
  return owner.empty() ? Concat("service/", service, "/", place) : Concat("service/", service, "/", place, "/", owner);
}

std::string NewId() {
  std::array<uint8_t, 16> random{};
  AB_CHECK(::getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()));
  std::string text;
  for (const uint8_t byte : random) {
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

Status CheckName(std::string_view service) {
  if (service.empty()) return InvalidArgument("a service's name is empty: pass the name that its servers state");
  if (service.size() <= kNameBytesMax) return Ok();
  return InvalidArgument("a service's name has ", service.size(), " bytes, the most is ", kNameBytesMax,
                         ": pass a shorter one");
}

bool IsNotice(const Status& status) {
  static const auto* const reasons = new std::set<std::string>{"CHANNEL_ENDED", "SENDER_DIED",   "SENDER_ABANDONED",
                                                               "NO_RECEIVER",   "RECEIVER_DIED", "RECEIVER_ABANDONED"};
  return !status.ok() && reasons->contains(status.reason());
}

Result<Mailbox> Mailbox::Open(Broker& broker, const std::string& name, Channel::Role role,
                              const ChannelOptions& options) {
  AB_ASSIGN_OR_RETURN(Channel channel, broker.OpenChannel(name, role, options));
  return Mailbox(broker, std::move(channel));
}

Result<std::optional<Mailbox>> Mailbox::To(Broker& broker, const std::string& name) {
  AB_ASSIGN_OR_RETURN(Mailbox opened, Open(broker, name, Channel::Role::kSender, {}));
  if (!opened.OwnerIsGone()) return std::optional(std::move(opened));
  opened.Discard();
  return std::optional<Mailbox>();
}

Status Mailbox::Post(const ServiceLetter& letter, std::optional<std::chrono::milliseconds> timeout,
                     const Content* content) {
  Channel::SendOptions options{.structure = std::string(content ? content->structure : kNoTree),
                               .metadata = letter.Encoded(),
                               .timeout = timeout};
  const std::span<const View> views = content ? content->views : std::span(&Nothing(), 1);
  return broker_->Send(channel_, views, std::move(options), content != nullptr).status();
}

Result<Acquired> Mailbox::Next(MapMode mode, std::optional<std::chrono::milliseconds> timeout) {
  return channel_.Receive({.mode = mode, .timeout = timeout});
}

bool Mailbox::OwnerIsGone() {
  if (channel_.capacity() != kCapacity) return true;
  uint64_t seen = 0;
  return IsNotice(channel_.Check(PeerDeath::kTell, &seen));
}

void Mailbox::Discard() {
  Abandon();
  static_cast<void>(broker_->DrainChannel(channel_.name()));
}

}  // namespace arraybridge::services
