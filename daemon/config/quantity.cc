// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/quantity.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace arraybridge::daemon {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr Unit kByteUnits[] = {
    {"", 1}, {"B", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}};
constexpr Unit kTimeUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};
// Longer than any deadline, and small enough to add to any clock without overflow.
constexpr uint64_t kDurationMsMax = 366ull * 24 * 3'600'000;

// Splits "64KiB" into its number and its unit, and returns their product.
template <size_t Count>
Result<uint64_t> Read(std::string_view text, const Unit (&units)[Count], std::string_view right) {
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + digits, number);
  if (digits == 0 || parsed.ec != std::errc()) return InvalidArgument("'", text, "' is not ", right);
  const std::string_view name = text.substr(digits);
  const auto* unit = std::find_if(std::begin(units), std::end(units), [&](const Unit& u) { return u.name == name; });
  if (unit == std::end(units)) return InvalidArgument("'", text, "' is not ", right);
  if (number > std::numeric_limits<uint64_t>::max() / unit->factor) return InvalidArgument("'", text, "' is too large");
  return number * unit->factor;
}

}  // namespace

Result<uint64_t> ReadBytes(std::string_view text) {
  return Read(text, kByteUnits, "a size: a whole number and B, KiB, MiB, GiB or TiB");
}

Result<BytesOrPercent> ReadBytesOrPercent(std::string_view text) {
  if (text.empty() || text.back() != '%') {
    AB_ASSIGN_OR_RETURN(const auto bytes, ReadBytes(text));
    return BytesOrPercent(bytes);
  }
  const auto percent = ReadNumber(text.substr(0, text.size() - 1));
  if (!percent.ok() || *percent > 100) return InvalidArgument("'", text, "' is not a percentage from 0% to 100%");
  return BytesOrPercent(Percent{static_cast<uint32_t>(*percent)});
}

Result<std::chrono::milliseconds> ReadDuration(std::string_view text) {
  if (text == "0") return std::chrono::milliseconds(0);
  AB_ASSIGN_OR_RETURN(const auto milliseconds, Read(text, kTimeUnits, "a duration: a whole number and ms, s, m or h"));
  if (milliseconds > kDurationMsMax) return InvalidArgument("'", text, "' is too long");
  return std::chrono::milliseconds(milliseconds);
}

Result<uint64_t> ReadNumber(std::string_view text) {
  constexpr Unit plain[] = {{"", 1}};
  return Read(text, plain, "a whole number");
}

std::vector<std::string_view> SplitList(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, comma);
    one.remove_prefix(std::min(one.find_first_not_of(" \t"), one.size()));
    one = one.substr(0, one.find_last_not_of(" \t") + 1);
    parts.push_back(one);
    if (comma == text.size()) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::string WrittenDuration(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? std::to_string(time.count() / 1000) + "s" : std::to_string(time.count()) + "ms";
}

}  // namespace arraybridge::daemon
