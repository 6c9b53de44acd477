// SPDX-License-Identifier: Apache-2.0
// The handles of services in C.
#pragma once

#include <utility>

#include <arraybridge/c/ab_service.h>
#include <arraybridge/services/service.h>

#include "client/c_api/boundary.h"

struct ab_caller {
  arraybridge::ServiceCaller caller;
};

struct ab_answers {
  arraybridge::ServiceAnswers answers;
};

struct ab_service {
  arraybridge::Service service;
};

struct ab_request {
  explicit ab_request(arraybridge::ServiceRequest given) : request(std::move(given)) {
    value.views = request.value().views;
    value.share = request.value().share;
    value.sent = request.value().sent;
  }
  arraybridge::ServiceRequest request;
  ab_array value;
};
