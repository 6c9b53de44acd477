// Readers of settings that are words, names, paths or numbers of a range. Each error says which texts are right.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/boundary/result.h"

namespace arraybridge {

// A word of the configuration for true or for false. Other spellings follow the first two words of a list.
struct BoolWord {
  std::string_view word;
  bool value = false;
};
inline constexpr BoolWord kTrueFalse[] = {{"true", true}, {"false", false}, {"1", true}, {"0", false}};
inline constexpr BoolWord kAutoNever[] = {{"auto", true}, {"never", false}, {"true", true},
                                          {"1", true},    {"false", false}, {"0", false}};
Result<bool> ReadBool(std::string_view text, std::span<const BoolWord> words);

Result<std::string> ReadOneOf(std::string_view text, const std::vector<std::string_view>& words);

// `right`: the texts that are right, for the error.
Result<uint64_t> ReadNumberIn(std::string_view text, uint64_t least, uint64_t most, std::string_view right);

// Absolute, or empty.
Result<std::string> ReadPath(std::string_view text);
// auto, none, an absolute path, or the name of a library.
Result<std::string> ReadCudaDriver(std::string_view text);
// Names of hosts with commas between them, as lower-case letters; an empty text has none.
Result<std::vector<std::string>> ReadHosts(std::string_view text);

}  // namespace arraybridge
