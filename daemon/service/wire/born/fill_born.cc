// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/wire/born/fill_born.h"

#include <string>

namespace arraybridge::daemon {
namespace {

template <class Numbers, class Names>
void Add(const Numbers& numbers, const Names& names, google::protobuf::RepeatedPtrField<v1::BornNumber>* to) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] == 0) continue;
    v1::BornNumber& named = *to->Add();
    named.set_name(std::string(names[i]));
    named.set_number(numbers[i]);
  }
}

}  // namespace

void Fill(v1::BornInfo* message, const born::Figures& figures) {
  message->set_arrays(figures.arrays);
  message->set_missed_bytes(figures.missed_bytes);
  Add(figures.bytes, born::kFrameworks, message->mutable_bytes());
  Add(figures.missed, born::kReasons, message->mutable_missed());
}

}  // namespace arraybridge::daemon
