// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/services.h"

#include <memory>

using namespace arraybridge::c;
using arraybridge::Code;
using arraybridge::InvalidArgument;
using arraybridge::Ok;
using arraybridge::Result;
using arraybridge::Service;
using arraybridge::ServiceCaller;
using arraybridge::Status;
using arraybridge::View;

namespace {

constexpr size_t kServiceOptionsBytesMin = sizeof(ab_service_options);
constexpr size_t kRequestStateBytesMin = sizeof(ab_request_state);

// The arrays of a request or an answer, and the structure of their tree.
struct Said {
  std::vector<View> views;
  std::string structure;
};

Result<Said> SaidBy(const ab_content* content) {
  AB_ASSIGN_OR_RETURN(const auto known, Known(content, kContentBytesMin, "content"));
  AB_ASSIGN_OR_RETURN(auto description, DescriptionOf(known));
  if (!description.metadata.empty()) {
    return InvalidArgument("content.metadata has ", description.metadata.size(),
                           " bytes: requests and answers have none; state it in content.structure, or as an array");
  }
  AB_ASSIGN_OR_RETURN(auto views, ViewsOf(known));
  return Said{std::move(views), std::move(description.structure)};
}

Result<Service::Options> OptionsOf(const ab_service_options* given) {
  Service::Options options;
  if (given == nullptr) return options;
  AB_ASSIGN_OR_RETURN(const auto known, Known(given, kServiceOptionsBytesMin, "options"));
  options.retry = known.retry != 0;
  if (known.queue != 0) options.queue = known.queue;
  return options;
}

// Answers are sent in the same way, whether there is a result or not.
Status Tell(const Result<bool>& answered, int32_t* waits) {
  if (answered.ok() && waits != nullptr) *waits = *answered ? 1 : 0;
  return answered.status();
}

}  // namespace

ab_code ab_open_caller(ab_broker* broker, const char* service, ab_caller** caller) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(service, "service"));
    AB_RETURN_IF_ERROR(CheckGiven(caller, "caller"));
    AB_ASSIGN_OR_RETURN(auto opened, ServiceCaller::Open(broker->broker, service));
    *caller = std::unique_ptr<ab_caller>(new ab_caller{std::move(opened)}).release();
    return Ok();
  });
}

ab_code ab_call(ab_caller* caller, const ab_content* content, int64_t timeout_ms, ab_array** answer) {
  return With(caller, "caller", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(answer, "answer"));
    AB_ASSIGN_OR_RETURN(auto said, SaidBy(content));
    auto answered =
        caller->caller.Call(said.views, {.structure = std::move(said.structure), .timeout = TimeoutOf(timeout_ms)});
    if (!answered.ok()) return answered.status();
    *answer = ArrayOf(*std::move(answered));
    return Ok();
  });
}

ab_code ab_call_items(ab_caller* caller, const ab_content* content, int64_t timeout_ms, ab_answers** answers) {
  return With(caller, "caller", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(answers, "answers"));
    AB_ASSIGN_OR_RETURN(auto said, SaidBy(content));
    const ServiceCaller::CallOptions options{.structure = std::move(said.structure), .timeout = TimeoutOf(timeout_ms)};
    auto made = caller->caller.Stream(std::move(said.views), options);
    *answers = std::unique_ptr<ab_answers>(new ab_answers{std::move(made)}).release();
    return Ok();
  });
}

ab_code ab_next(ab_answers* answers, ab_array** item) {
  return With(answers, "answers", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(item, "item"));
    AB_ASSIGN_OR_RETURN(auto next, answers->answers.Next());
    if (!next) return {Code::kOutOfRange, "the answer has no further items", "ANSWERS_ENDED"};
    *item = ArrayOf(*std::move(next));
    return Ok();
  });
}

void ab_drop_answers(ab_answers* answers) { std::unique_ptr<ab_answers>(answers).reset(); }

void ab_drop_caller(ab_caller* caller) { std::unique_ptr<ab_caller>(caller).reset(); }

ab_code ab_open_service(ab_broker* broker, const char* service, const ab_service_options* options,
                        ab_service** opened) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(service, "service"));
    AB_RETURN_IF_ERROR(CheckGiven(opened, "opened"));
    AB_ASSIGN_OR_RETURN(const auto stated, OptionsOf(options));
    AB_ASSIGN_OR_RETURN(auto made, Service::Open(broker->broker, service, stated));
    *opened = std::unique_ptr<ab_service>(new ab_service{std::move(made)}).release();
    return Ok();
  });
}

ab_code ab_take(ab_service* service, int64_t timeout_ms, ab_request** request) {
  return With(service, "service", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(request, "request"));
    AB_ASSIGN_OR_RETURN(auto taken, service->service.Receive(TimeoutOf(timeout_ms)));
    *request = std::make_unique<ab_request>(std::move(taken)).release();
    return Ok();
  });
}

ab_code ab_close_service(ab_service* service) {
  return With(service, "service", [&]() -> Status {
    service->service.Close();
    return Ok();
  });
}

void ab_drop_service(ab_service* service) { std::unique_ptr<ab_service>(service).reset(); }

const ab_array* ab_value_of(const ab_request* request) { return request == nullptr ? nullptr : &request->value; }

ab_code ab_state_of(ab_request* request, ab_request_state* state) {
  return With(request, "request", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(state, "state"));
    const size_t size = state->size;
    AB_RETURN_IF_ERROR(CheckSize(size, kRequestStateBytesMin, "state"));
    const bool cancelled = request->request.cancelled();
    const auto left = request->request.left();
    std::memset(state, 0, size);  // clears fields of a newer header, which are unknown here
    *state = {size, cancelled ? 1 : 0, left ? static_cast<int64_t>(left->count()) : -1};
    return Ok();
  });
}

ab_code ab_reply(ab_request* request, const ab_content* content, int32_t* waits) {
  return With(request, "request", [&]() -> Status {
    AB_ASSIGN_OR_RETURN(const auto said, SaidBy(content));
    return Tell(request->request.Reply(said.views, said.structure), waits);
  });
}

ab_code ab_send_item(ab_request* request, const ab_content* content, int32_t* waits) {
  return With(request, "request", [&]() -> Status {
    AB_ASSIGN_OR_RETURN(const auto said, SaidBy(content));
    return Tell(request->request.Stream(said.views, said.structure), waits);
  });
}

ab_code ab_end(ab_request* request, int32_t* waits) {
  return With(request, "request", [&]() -> Status { return Tell(request->request.End(), waits); });
}

ab_code ab_fail(ab_request* request, const char* why, int32_t* waits) {
  return With(request, "request", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(why, "why"));
    return Tell(request->request.Fail(why), waits);
  });
}

void ab_drop_request(ab_request* request) { std::unique_ptr<ab_request>(request).reset(); }
