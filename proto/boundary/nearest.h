// SPDX-License-Identifier: Apache-2.0
// Finds the known word that a user probably meant by an unknown one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace arraybridge {

// A third of the letters of a word may differ, and at least one.
inline size_t EditsOf(std::string_view word) { return word.size() < 6 ? 1 : word.size() / 3; }

// The first of the known words that the fewest edits make of `word`; an edit inserts, removes or replaces a letter, or
// swaps two neighbours. Empty if each needs more than `edits_max`. The time grows with the product of the lengths of
// two words whose lengths differ by at most `edits_max`.
std::string Nearest(std::string_view word, std::span<const std::string> known, size_t edits_max);

// "did you mean 'WORD'? " for the nearest word, or an empty text.
std::string DidYouMean(std::string_view word, std::span<const std::string> known, size_t edits_max);

}  // namespace arraybridge
