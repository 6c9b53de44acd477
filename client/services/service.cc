// SPDX-License-Identifier: Apache-2.0
#include <arraybridge/services/service.h>

#include <utility>

#include "client/services/caller.h"
#include "client/services/letters.h"
#include "client/services/request.h"
#include "client/services/server.h"

namespace arraybridge {

using services::ChannelOf;
using services::Mailbox;
using std::chrono::milliseconds;

Result<ServiceCaller> ServiceCaller::Open(Broker& broker, const std::string& service, MapMode mode) {
  AB_RETURN_IF_ERROR(services::CheckName(service));
  const std::string id = services::NewId();
  AB_ASSIGN_OR_RETURN(Mailbox answers, Mailbox::Open(broker, ChannelOf(service, "answers", id),
                                                     Channel::Role::kReceiver, {.capacity = Mailbox::kCapacity}));
  AB_ASSIGN_OR_RETURN(Mailbox presence, Mailbox::Open(broker, ChannelOf(service, "presence"), Channel::Role::kReceiver,
                                                      {.mode = ChannelMode::kBroadcast}));
  AB_ASSIGN_OR_RETURN(Mailbox tickets,
                      Mailbox::Open(broker, ChannelOf(service, "tickets"), Channel::Role::kSender, {}));
  return ServiceCaller(std::make_shared<Core>(broker, service, mode, id, Core::Boxes{answers, presence, tickets}));
}

Result<Acquired> ServiceCaller::Call(std::span<const View> value, const CallOptions& options) {
  return core_->Call(value, options);
}
std::future<Result<Acquired>> ServiceCaller::Submit(std::vector<View> value, const CallOptions& options) {
  return core_->Submit(std::move(value), options);
}
ServiceAnswers ServiceCaller::Stream(std::vector<View> value, const CallOptions& options) {
  return ServiceAnswers(std::make_shared<ServiceAnswers::Core>(core_, core_->Stream(std::move(value), options)));
}

ServiceAnswers::Core::~Core() { Close(); }
void ServiceAnswers::Core::Close() {
  caller->TakeBack(*call, [] {
    return FailedPrecondition("these answers were closed here: call ServiceCaller::Stream again")
        .Because("ANSWERS_CLOSED");
  });
}
Result<std::optional<Acquired>> ServiceAnswers::Next() { return core_->caller->NextOf(*core_->call); }
void ServiceAnswers::Close() { core_->Close(); }
void ServiceCaller::Close() { core_->Close(); }

const Acquired& ServiceRequest::value() const { return core_->value(); }
const Sender& ServiceRequest::caller() const { return *core_->value().sent.sender; }
bool ServiceRequest::cancelled() {
  if (!core_->is_cancelled()) core_->ReadArrived(milliseconds(0));
  return core_->is_cancelled();
}
std::optional<milliseconds> ServiceRequest::left() const { return core_->left(); }
Result<bool> ServiceRequest::Reply(std::span<const View> value, const std::string& structure) {
  const services::Content content{value, structure};
  return core_->Answer(services::kAnswer, {}, &content);
}
Result<bool> ServiceRequest::Stream(std::span<const View> item, const std::string& structure) {
  return core_->Stream({item, structure});
}
Result<bool> ServiceRequest::End() { return core_->Answer(services::kEnd, {}, nullptr); }
Result<bool> ServiceRequest::Fail(std::string_view why) { return core_->Answer(services::kFailed, why, nullptr); }

Result<Service> Service::Open(Broker& broker, const std::string& service, const Options& options) {
  AB_RETURN_IF_ERROR(services::CheckName(service));
  const std::string id = services::NewId();
  AB_ASSIGN_OR_RETURN(Mailbox requests, Mailbox::Open(broker, ChannelOf(service, "requests", id),
                                                      Channel::Role::kReceiver, {.capacity = Mailbox::kCapacity}));
  AB_ASSIGN_OR_RETURN(Mailbox presence, Mailbox::Open(broker, ChannelOf(service, "presence"), Channel::Role::kSender,
                                                      {.mode = ChannelMode::kBroadcast}));
  // Last: a ticket that is lost with this process has callers who are told so.
  auto tickets =
      Mailbox::Open(broker, ChannelOf(service, "tickets"), Channel::Role::kReceiver, {.capacity = options.queue});
  if (tickets.status().reason() == "CHANNEL_CAPACITY") {
    return FailedPrecondition("queue = ", options.queue, " of service '", service,
                              "' is refused: ", tickets.status().message(),
                              "; state one queue in all servers of the name, at most limits.channel_capacity_max")
        .Because("QUEUE");
  }
  AB_RETURN_IF_ERROR(tickets.status());
  const auto core = std::make_shared<Core>(broker, service, options, id, Core::Boxes{requests, presence, *tickets});
  // Requests keep the Core; the last copy of the Service closes it.
  return Service(std::shared_ptr<Core>(core.get(), [core](Core* its) { its->Close(); }));
}

Result<ServiceRequest> Service::Receive(std::optional<milliseconds> timeout) { return core_->Receive(timeout); }
void Service::Close() { core_->Close(); }

}  // namespace arraybridge
