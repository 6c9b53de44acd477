// A Quantity is how people write sizes and times: "2MiB", "80%", "30s", "500ms". Read whole or refused. And of several
// things said in one text.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge {

struct Percent {
  uint32_t value = 0;  // 0 to 100
  friend bool operator==(Percent, Percent) = default;
};

// "4096", "64KiB", "2MiB", "8GiB", "1TiB": bytes, in powers of 1024.
Result<uint64_t> ReadBytes(std::string_view text);
// Bytes, or "50%".
Result<std::variant<uint64_t, Percent>> ReadBytesOrPercent(std::string_view text);
// "500ms", "30s", "5m", "1h". A bare number is refused but for 0: its unit would be a guess.
Result<std::chrono::milliseconds> ReadDuration(std::string_view text);
// Decimal digits alone.
Result<uint64_t> ReadNumber(std::string_view text);
// What stands between commas, without the blanks around it; at least one, which may be empty.
std::vector<std::string_view> SplitList(std::string_view text);

// What was read goes to its place, if it was.
template <class T, class Parsed>
Status Store(Result<Parsed> parsed, T* place) {
  if (!parsed.ok()) return parsed.status();
  *place = *std::move(parsed);
  return Ok();
}

}  // namespace arraybridge
