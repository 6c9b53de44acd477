// SPDX-License-Identifier: Apache-2.0
// A ServiceRequest::Core is a request on its server's side. It keeps the server until it is answered.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <arraybridge/services/letter.h>
#include <arraybridge/services/service.h>

#include "client/services/mailbox.h"

namespace arraybridge {

namespace services {

using Key = std::pair<std::string, uint64_t>;  // the caller, and the number of the request in it

// The part of a server that its requests need.
class Answering {
 public:
  virtual ~Answering() = default;
  // Sends the answer. False: the caller waits no longer.
  virtual Result<bool> Answer(ServiceRequest::Core& request, ServiceLetter letter, const Content* content) = 0;
  // Reads what callers have said meanwhile. Waits for so long until one says something.
  virtual void ReadArrived(std::chrono::milliseconds wait) = 0;
};

}  // namespace services

// Thread-safe.
class ServiceRequest::Core {
 public:
  Core(std::shared_ptr<services::Answering> server, const ServiceLetter& letter, Acquired value);
  // Fails it, unless it is answered.
  ~Core();

  uint64_t called_ns = 0;  // when, of CLOCK_BOOTTIME; constant once the server has it

  const services::Key& key() const { return key_; }
  const Acquired& value() const { return value_; }
  // True: no caller waits, as far as is known. No call.
  bool is_cancelled() const;
  void Cancel() { cancelled_.store(true); }
  // The caller has room for so many items more.
  void AddRoom(uint64_t room) { room_.fetch_add(room); }
  // The server has it in its hands from now on.
  void Begin() { begun_.store(true); }
  bool begun() const { return begun_.load(); }
  // No answer is sent from now on.
  void Close() { answered_.store(true); }
  void ReadArrived(std::chrono::milliseconds wait) { server_->ReadArrived(wait); }
  std::optional<std::chrono::milliseconds> left() const;
  Result<bool> Answer(const char* kind, std::string_view why, const services::Content* content);
  // One item of the answer. Waits for room.
  Result<bool> Stream(const services::Content& content);

 private:
  const std::shared_ptr<services::Answering> server_;
  const services::Key key_;
  const uint64_t due_ns_;
  const Acquired value_;
  const bool takes_items_;
  std::atomic<uint64_t> room_;  // for items
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> begun_{false};
  std::atomic<bool> answered_{false};
};

}  // namespace arraybridge
