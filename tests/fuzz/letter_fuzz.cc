// SPDX-License-Identifier: Apache-2.0
// Letters of services, which another client has written: any bytes. What is read is written as it was read.
#include <arraybridge/services/letter.h>

#include "proto/boundary/result.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using arraybridge::ServiceLetter;
  arraybridge::Input input(data, size);
  const auto read = ServiceLetter::Of(input.TakeRest());
  if (!read) return 0;
  const std::string bytes = read->Encoded();
  const auto again = ServiceLetter::Of(bytes);
  AB_CHECK(again && again->kind == read->kind && again->peer == read->peer && again->number == read->number);
  AB_CHECK(again->due_ns == read->due_ns && again->text == read->text && again->retry == read->retry);
  AB_CHECK(again->held == read->held && again->room == read->room);
  return 0;
}
