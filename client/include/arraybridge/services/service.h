// SPDX-License-Identifier: Apache-2.0
// A service answers requests of other processes. Requests and answers are arrays, which travel as in a channel: without
// a copy where they lie in broker memory. A request is executed at most once, whichever process ends. Callers and
// servers of C++ and of Python (Broker.call, Broker.service) serve one another.
//
//   auto service = arraybridge::Service::Open(broker, "invert", {});         // a server; several may serve one name
//   for (auto request = service->Receive({}); request.ok(); request = service->Receive({}))
//     if (auto sent = request->Reply(Inverted(request->value().views)); !sent.ok()) Log(sent.status());
//   // in any other process:
//   auto invert = arraybridge::ServiceCaller::Open(broker, "invert");
//   auto answer = invert->Call({&view, 1}, {.timeout = std::chrono::seconds(1)});
//   if (answer.ok()) Use(answer->views);
//
// A single array has the structure ""; that of a tree is what Python's trees have (docs/guides/writing-a-client.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <arraybridge/array.h>
#include <arraybridge/broker.h>

#include "proto/boundary/result.h"

namespace arraybridge {

// The items of one answer, in order. One thread takes them at a time; a copy is the same answer. If it is closed, or
// the last copy is destroyed, before its end, the server sees the request as cancelled.
class ServiceAnswers {
 public:
  // The next item; nothing: there is no further one. Errors of ServiceCaller::Call, after the items that were sent
  // before; `timeout` is that of the whole answer. CANCELLED: the next call goes on. FAILED_PRECONDITION,
  // ANSWERS_CLOSED.
  Result<std::optional<Acquired>> Next();
  void Close();

  struct Core;  // client/services/caller.h
  explicit ServiceAnswers(std::shared_ptr<Core> core) : core_(std::move(core)) {}

 private:
  std::shared_ptr<Core> core_;
};

// Asks the servers of one service. Thread-safe; a copy is the same caller. REQUIRES: the Broker outlives it. A forked
// child opens its own.
class ServiceCaller {
 public:
  // Errors of Broker::OpenChannel. INVALID_ARGUMENT: `service` is empty or longer than 128 bytes. `mode`: how answers
  // are mapped.
  static Result<ServiceCaller> Open(Broker& broker, const std::string& service, MapMode mode = MapMode::kShared);

  struct CallOptions {
    std::string structure{};
    // Time to wait for a server and its answer; nothing: no limit. After it no server gets the request, and one that
    // has it sees it as cancelled.
    std::optional<std::chrono::milliseconds> timeout{};
  };
  // Waits for the answer. A call needs no server yet. UNAVAILABLE, SERVER_GONE: the server ended with the request in
  // its hands; the status's metadata has its process_id and client. UNKNOWN, REQUEST_FAILED: the server says that it
  // has no result. DEADLINE_EXCEEDED: NOT_TAKEN, no server has got the request, and none will; NOT_ANSWERED, one has
  // it. CANCELLED: as of Broker::Options::interrupted. UNAVAILABLE, CHANNEL_LOST: the connection has ended, and the
  // outcome is unknown; open another caller. Errors of Broker::Send about the arrays.
  Result<Acquired> Call(std::span<const View> value, const CallOptions& options);
  // Call without waiting. The arrays must stay as they are until the future is ready.
  std::future<Result<Acquired>> Submit(std::vector<View> value, const CallOptions& options);
  // Asks for an answer of several items, which the server sends by ServiceRequest::Stream. The arrays must stay as they
  // are until the first item, or the outcome, is there.
  ServiceAnswers Stream(std::vector<View> value, const CallOptions& options);
  // Ends it; calls that wait fail with UNAVAILABLE, CALLER_CLOSED. The last copy does so when it is destroyed.
  void Close();

  class Core;  // client/services/caller.h

 private:
  explicit ServiceCaller(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

// A request in the hands of a server, which answers it once. Thread-safe; a copy is the same request. If the last copy
// is destroyed without an answer, the caller gets REQUEST_FAILED.
class ServiceRequest {
 public:
  const Acquired& value() const;
  // The process that asks.
  const Sender& caller() const;
  // True if no caller waits for the answer: its time is over, it has ended, or it has taken the request back. A server
  // that works for long asks, and stops; this may take a call to the broker.
  bool cancelled();
  // Time until the caller waits no longer; nothing: no limit.
  std::optional<std::chrono::milliseconds> left() const;
  // Answers. False: the caller waits no longer, and the result was dropped. FAILED_PRECONDITION, REQUEST_ANSWERED;
  // SERVICE_CLOSED. Errors of Broker::Send; the request is open then.
  Result<bool> Reply(std::span<const View> value, const std::string& structure = {});
  // Sends one item of an answer that has several, and ends with Reply, which sends its last item, or with End. Waits
  // while the caller has eight items that it has not taken. False: the caller waits no longer; or it takes one answer
  // alone, and gets REQUEST_FAILED. Errors of Reply.
  Result<bool> Stream(std::span<const View> item, const std::string& structure = {});
  // Ends an answer of several items, perhaps of none. False, errors: as of Reply.
  Result<bool> End();
  // Answers that there is no result, and why; at most 4096 bytes of it are sent.
  Result<bool> Fail(std::string_view why);

  class Core;  // client/services/request.h
  explicit ServiceRequest(std::shared_ptr<Core> core) : core_(std::move(core)) {}

 private:
  std::shared_ptr<Core> core_;
};

// One server of a service. Thread-safe; a copy is the same server. REQUIRES: the Broker outlives it. A forked child
// opens its own.
class Service {
 public:
  struct Options {
    // A request may be executed again, by another server, if the one that had it has ended. False: its caller gets
    // SERVER_GONE.
    bool retry = false;
    // The number of requests that may wait for a server, the same in all servers of a name. Further callers wait.
    uint64_t queue = 64;
    MapMode mode = MapMode::kShared;  // how the arrays of requests are mapped
  };
  // Becomes a server. Errors of Broker::OpenChannel. INVALID_ARGUMENT: as of ServiceCaller::Open. FAILED_PRECONDITION,
  // QUEUE: another server states another `queue`.
  static Result<Service> Open(Broker& broker, const std::string& service, const Options& options);

  // The next request. `timeout`: the time to wait for one; nothing: no limit. One thread waits at a time, others wait
  // for their turn. DEADLINE_EXCEEDED, NO_REQUEST. NOT_FOUND, CHANNEL_NOT_OPEN: it was closed here. UNAVAILABLE,
  // CHANNEL_LOST: the connection has ended; open another one. CANCELLED: as of Broker::Options::interrupted.
  Result<ServiceRequest> Receive(std::optional<std::chrono::milliseconds> timeout);
  // Ends it in order: requests that wait stay for other servers; callers of requests that it has get SERVER_GONE. The
  // last copy does so when it is destroyed. Idempotent.
  void Close();

  class Core;  // client/services/server.h

 private:
  explicit Service(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

}  // namespace arraybridge
