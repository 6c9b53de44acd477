// SPDX-License-Identifier: Apache-2.0
// Requests as doors pass them on to verbs, and answers as callers get them: as messages of libprotobuf.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "arraybridge/v1/broker.pb.h"
#include "daemon/service/verbs/verbs.h"

namespace arraybridge::daemon {

// The message as a verb gets it.
template <class Wire>
class As {
 public:
  explicit As(const google::protobuf::MessageLite& message)
      : bytes_(message.SerializeAsString()), read_(wire::Decode<Wire>(bytes_)) {}
  As(const As&) = delete;
  As& operator=(const As&) = delete;
  operator const Wire&() const { return *read_; }  // NOLINT(google-explicit-constructor)

 private:
  const std::string bytes_;
  const Result<Wire> read_;
};

using Asked = As<wire::PublishRequest>;

template <class Message>
struct Answered {
  Message message;
  PassedFd descriptor{};
};

template <class Message>
Result<Answered<Message>> AnsweredBy(Result<Answer> answer) {
  if (!answer.ok()) return answer.status();
  Answered<Message> answered;
  AB_CHECK(answered.message.ParseFromString(answer->message));
  answered.descriptor = std::move(answer->descriptor);
  return answered;
}

// Gets the answer once, on any thread; `waiter`: of the request if it waits.
template <class Message>
WaiterId Ask(Verbs& verbs, const Caller& caller, Verb verb, const google::protobuf::MessageLite& request,
             std::function<void(Result<Answered<Message>>)> heard) {
  const std::string bytes = request.SerializeAsString();
  const auto later = [&]() -> Reply {
    return [heard](Result<Answer> answer) { heard(AnsweredBy<Message>(std::move(answer))); };
  };
  auto served = verbs.Serve(caller, verb, bytes, later);
  if (!served.ok()) return heard(served.status()), WaiterId{};
  if (served->now) heard(AnsweredBy<Message>(*std::move(served->now)));
  return served->waiter;
}

template <class Message>
struct Awaited {
  std::promise<Result<Answered<Message>>> promise;
  std::future<Result<Answered<Message>>> future = promise.get_future();
  WaiterId waiter{};
  Result<Answered<Message>> Get() { return future.get(); }
};

template <class Message>
std::unique_ptr<Awaited<Message>> Start(Verbs& verbs, const Caller& caller, Verb verb,
                                        const google::protobuf::MessageLite& request) {
  auto awaited = std::make_unique<Awaited<Message>>();
  awaited->waiter = Ask<Message>(verbs, caller, verb, request,
                                 [a = awaited.get()](auto answer) { a->promise.set_value(std::move(answer)); });
  return awaited;
}

// The verbs by their names.
class TestDoor {
 public:
  explicit TestDoor(Verbs& verbs) : verbs_(verbs) {}

  auto Allocate(const Caller& caller, const v1::AllocateRequest& request) const {
    return Start<v1::AllocateResponse>(verbs_, caller, Verb::kAllocate, request);
  }
  auto Acquire(const Caller& caller, const v1::AcquireRequest& request) const {
    return Start<v1::AcquireResponse>(verbs_, caller, Verb::kAcquire, request);
  }
  auto Claim(const Caller& caller, const v1::ClaimRequest& request) const {
    return Start<v1::ClaimResponse>(verbs_, caller, Verb::kClaim, request);
  }
  auto Receive(const Caller& caller, const v1::ReceiveRequest& request) const {
    return Start<v1::AcquireResponse>(verbs_, caller, Verb::kReceive, request);
  }
  auto Send(const Caller& caller, const v1::PublishRequest& request) const {
    return Start<v1::PublishResponse>(verbs_, caller, Verb::kPublish, request);
  }
  auto Watch(const Caller& caller, const v1::WatchRequest& request) const {
    return Start<v1::WatchResponse>(verbs_, caller, Verb::kWatch, request);
  }
  auto Publish(const Caller& caller, const v1::PublishRequest& request) const { return Send(caller, request)->Get(); }
  auto Mapped(const Caller& caller, const v1::MappedRequest& request) const {
    return Now<v1::MappedResponse>(caller, Verb::kMapped, request);
  }
  auto Export(const Caller& caller, const v1::ExportRequest& request) const {
    return Now<v1::ExportResponse>(caller, Verb::kExport, request);
  }
  auto Release(const Caller& caller, const v1::ReleaseRequest& request) const {
    return Now<v1::ReleaseResponse>(caller, Verb::kRelease, request);
  }
  auto Withdraw(const Caller& caller, const v1::WithdrawRequest& request) const {
    return Now<v1::WithdrawResponse>(caller, Verb::kWithdraw, request);
  }
  auto List(const Caller& caller, const v1::ListRequest& request) const {
    return Now<v1::ListResponse>(caller, Verb::kList, request);
  }
  auto GetStats(const Caller& caller, const v1::GetStatsRequest& request) const {
    return Now<v1::GetStatsResponse>(caller, Verb::kGetStats, request);
  }
  auto Inspect(const Caller& caller, const v1::InspectRequest& request) const {
    return Now<v1::InspectResponse>(caller, Verb::kInspect, request);
  }
  auto Redeem(const Caller& caller, const v1::RedeemRequest& request) const {
    return Now<v1::RedeemResponse>(caller, Verb::kRedeem, request);
  }
  auto Browse(const Caller& caller, const v1::BrowseRequest& request) const {
    return Now<v1::BrowseResponse>(caller, Verb::kBrowse, request);
  }
  auto OpenChannel(const Caller& caller, const v1::OpenChannelRequest& request) const {
    return Now<v1::OpenChannelResponse>(caller, Verb::kOpenChannel, request);
  }
  auto CloseChannel(const Caller& caller, const v1::CloseChannelRequest& request) const {
    return Now<v1::CloseChannelResponse>(caller, Verb::kCloseChannel, request);
  }

 private:
  template <class Message>
  Result<Answered<Message>> Now(const Caller& caller, Verb verb, const google::protobuf::MessageLite& request) const {
    return Start<Message>(verbs_, caller, verb, request)->Get();
  }

  Verbs& verbs_;
};

}  // namespace arraybridge::daemon
