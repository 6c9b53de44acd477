// A listing is what `ls` shows: which rows of the broker's answer, in which order, in which columns, or what they come
// to in groups.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "client/ctl/commands.h"

namespace arraybridge::ctl {

// Which rows of a list, and how. What is empty was not said.
struct Selection {
  std::string what = "shares";
  std::string owner{};  // a user's number or name
  std::optional<uint64_t> process_id{};
  std::string device{};  // "cpu", "cuda:0", "cuda:GPU-...", "GPU-..."
  std::optional<uint64_t> older_than_ms{};
  std::string sort{};  // a column, in lower case
  bool reverse = false;
  std::string group_by{};  // "session", "device", "namespace"
};

// What may be listed, and by what rows are put into groups.
const std::vector<std::string>& ListedKinds();
const std::vector<std::string>& Groupings();
// What may be sorted by, of any kind of list: for completions.
std::vector<std::string> SortColumns();

// INVALID_ARGUMENT: what is listed has no such thing, or nobody is called so.
Status CheckSelection(const Selection& selection);
// True if the device is the one that a user means by `text`.
bool IsDevice(const v1::Device& device, const std::string& text);

// Asks for page after page and prints what is selected of them as one: JSON lines that are not sorted as each page
// comes, everything else after the last. INVALID_ARGUMENT: as CheckSelection.
using AskPage = std::function<Status(const v1::ListRequest& request, v1::ListResponse* page)>;
Status PrintListed(const Selection& selection, const Options& options, const AskPage& ask, std::ostream& out);
Status Ls(Connection& connection, const Options& options, const Selection& selection, std::ostream& out);

}  // namespace arraybridge::ctl
