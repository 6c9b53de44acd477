// SPDX-License-Identifier: Apache-2.0
#include "proto/boundary/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace arraybridge {
namespace {

// Optimal string alignment: Levenshtein's distance, in which two swapped neighbours are one edit.
size_t Distance(std::string_view one, std::string_view other) {
  std::vector<size_t> before(other.size() + 1);
  std::vector<size_t> last(other.size() + 1);
  std::vector<size_t> row(other.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= one.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= other.size(); ++j) {
      const size_t replaced = last[j - 1] + (one[i - 1] == other[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last.back();
}

}  // namespace

std::string Nearest(std::string_view word, std::span<const std::string> known, size_t edits_max) {
  std::string nearest;
  size_t fewest = edits_max + 1;
  for (const std::string& each : known) {
    const size_t longer = std::max(word.size(), each.size()) - std::min(word.size(), each.size());
    if (longer >= fewest) continue;
    const size_t edits = Distance(word, each);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = each;
  }
  return nearest;
}

std::string DidYouMean(std::string_view word, std::span<const std::string> known, size_t edits_max) {
  const std::string nearest = Nearest(word, known, edits_max);
  return nearest.empty() ? "" : "did you mean '" + nearest + "'? ";
}

}  // namespace arraybridge
