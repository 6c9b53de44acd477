// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/services/figures.h"

#include <array>
#include <charconv>
#include <utility>

namespace arraybridge::ctl {

Figures ReadFigures(std::string_view text) {
  using Field = std::pair<std::string_view, uint64_t Figures::*>;
  constexpr std::array<Field, 5> kFields = {{{"requests", &Figures::requests},
                                             {"failed", &Figures::failed},
                                             {"rate_milli", &Figures::rate_milli},
                                             {"p50_us", &Figures::p50_us},
                                             {"p99_us", &Figures::p99_us}}};
  Figures figures;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size() == text.size() ? word.size() : word.size() + 1);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view digits = word.substr(equals + 1);
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size()) continue;
    for (const auto& [name, field] : kFields) {
      if (name == word.substr(0, equals)) figures.*field = number;
    }
  }
  return figures;
}

}  // namespace arraybridge::ctl
