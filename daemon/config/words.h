// SPDX-License-Identifier: Apache-2.0
// Readers of settings that are words, names, paths or numbers in a range. Each error says which texts are allowed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge::daemon {

// A word that means true or false. The first two words of a list are the usual ones; the others are further spellings.
struct BoolWord {
  std::string_view word;
  bool value = false;
};
inline constexpr BoolWord kTrueFalse[] = {{"true", true}, {"false", false}, {"1", true}, {"0", false}};
inline constexpr BoolWord kAutoNever[] = {{"auto", true}, {"never", false}, {"true", true},
                                          {"1", true},    {"false", false}, {"0", false}};
Result<bool> ReadBool(std::string_view text, std::span<const BoolWord> words);

Result<std::string> ReadOneOf(std::string_view text, const std::vector<std::string_view>& words);

// `right`: the allowed texts, for the error.
Result<uint64_t> ReadNumberIn(std::string_view text, uint64_t least, uint64_t most, std::string_view right);

// An absolute path or an empty text.
Result<std::string> ReadPath(std::string_view text);
// auto, none, an absolute path, or the name of a library.
Result<std::string> ReadCudaDriver(std::string_view text);
// Comma-separated host names, converted to lower case; an empty text gives an empty list.
Result<std::vector<std::string>> ReadHosts(std::string_view text);

}  // namespace arraybridge::daemon
