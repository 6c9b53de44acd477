// SPDX-License-Identifier: Apache-2.0
// A Mailbox is one end of a channel of a service: it sends letters, or receives them. A service is four kinds of
// channels, and the caller decides which server executes its request:
//
//   tickets     queue, callers to servers    one ticket a request: a free server takes it
//   answers     queue, servers to a caller   "ask": may I? Later the answer
//   requests    queue, callers to a server   "go" with the arrays, to one server for each request; or "no"
//   presence    broadcast, nothing is sent   its notices tell callers that a server has ended
//
// A ticket may be lost with a server, and sent again: it has no effect but an "ask". The caller knows to which server
// it said "go", and the notices of its answers tell when this server ends.
//
// A mailbox with one receiver, its owner, is made by this owner before others learn its name, and has kCapacity. So
// another process that opens it can tell whether the owner lives: a dead owner's channel has a notice of its end, or is
// gone, and then opening makes a new one of another capacity.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <arraybridge/broker.h>
#include <arraybridge/services/letter.h>

#include "proto/boundary/result.h"

namespace arraybridge::services {

// The arrays that travel with a letter.
struct Content {
  std::span<const View> views;
  std::string_view structure;
};

inline constexpr std::string_view kNoTree = R"({"d":[]})";  // a tree without arrays, which has one without elements
// The array of a letter that carries none: no share is without an array.
const View& Nothing();
// The name of a channel of a service. `owner`: of "answers" and "requests".
std::string ChannelOf(std::string_view service, std::string_view place, std::string_view owner = {});
// A name for a caller or a server that no other one has.
std::string NewId();
// INVALID_ARGUMENT: no service can have this name.
Status CheckName(std::string_view service);
// True: the other role's ends have closed or are lost; the end itself is open.
bool IsNotice(const Status& status);

// Thread-safe. A copy is the same end. REQUIRES: the Broker outlives it.
class Mailbox {
 public:
  static constexpr uint64_t kCapacity = 7;  // no other channel has it by default

  static Result<Mailbox> Open(Broker& broker, const std::string& name, Channel::Role role,
                              const ChannelOptions& options);
  // The sender's end of a mailbox that another process owns. Nothing: its owner has ended.
  static Result<std::optional<Mailbox>> To(Broker& broker, const std::string& name);

  // Errors of Broker::Send: nothing was sent.
  Status Post(const ServiceLetter& letter, std::optional<std::chrono::milliseconds> timeout,
              const Content* content = nullptr);
  // False: there is no room, or the receiver is gone.
  bool TryPost(const ServiceLetter& letter) { return Post(letter, std::chrono::milliseconds(0)).ok(); }
  // Errors of Channel::Receive.
  Result<Acquired> Next(MapMode mode, std::optional<std::chrono::milliseconds> timeout);
  // True if the one receiver of this mailbox has closed it, has died or was never there.
  bool OwnerIsGone();
  // Closes, and drops what a receiver that is gone has not received: without it, and without ends, the channel is gone.
  void Discard();
  void Close() { static_cast<void>(channel_.Close()); }
  // Closes so that each of the other ends is told, not only of the last one.
  void Abandon() { static_cast<void>(channel_.Abandon()); }

 private:
  Mailbox(Broker& broker, Channel channel) : broker_(&broker), channel_(std::move(channel)) {}

  Broker* broker_;
  Channel channel_;
};

}  // namespace arraybridge::services
