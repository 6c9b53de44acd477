// SPDX-License-Identifier: Apache-2.0
// A quantity is a size, a percentage or a time as an operator writes it: "2MiB", "80%", "30s". Each reader consumes the
// whole text or refuses it; the error says which texts are allowed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

struct Percent {
  uint32_t value = 0;  // 0 to 100
  friend bool operator==(Percent, Percent) = default;
};
using BytesOrPercent = std::variant<uint64_t, Percent>;

// "4096", "64KiB", "2MiB", "8GiB", "1TiB": bytes, in powers of 1024.
Result<uint64_t> ReadBytes(std::string_view text);
// Bytes, or "50%".
Result<BytesOrPercent> ReadBytesOrPercent(std::string_view text);
// "500ms", "30s", "5m", "1h". A number without a unit is refused, except 0, because its unit would be a guess.
Result<std::chrono::milliseconds> ReadDuration(std::string_view text);
// Decimal digits.
Result<uint64_t> ReadNumber(std::string_view text);
// The parts between commas, without surrounding blanks. There is at least one part; it may be empty.
std::vector<std::string_view> SplitList(std::string_view text);

// In seconds, or in milliseconds if the time is not a whole number of seconds.
std::string WrittenDuration(std::chrono::milliseconds time);

// Moves the value to `place` if `parsed` has one.
template <class T, class Parsed>
Status Store(Result<Parsed> parsed, T* place) {
  if (!parsed.ok()) return parsed.status();
  *place = *std::move(parsed);
  return Ok();
}

}  // namespace arraybridge::daemon
