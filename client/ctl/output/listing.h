// SPDX-License-Identifier: Apache-2.0
// A listing is the output of `ls`: the selected rows of the broker's answer in columns, or their sums in groups.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "client/ctl/commands.h"

namespace arraybridge::ctl {

// Selects and orders the rows of a list. An empty member was not given.
struct Selection {
  std::string what = "shares";
  std::string owner{};  // user ID or user name
  std::optional<uint64_t> process_id{};
  std::string device{};  // "cpu", "cuda:0", "cuda:GPU-...", "GPU-..."
  std::optional<uint64_t> older_than_ms{};
  std::string sort{};  // a column, in lower case
  bool reverse = false;
  std::string group_by{};  // "session", "device", "namespace"
};

// The kinds of lists, and the values by which rows can be grouped.
const std::vector<std::string>& ListedKinds();
const std::vector<std::string>& Groupings();
// The columns of all kinds of lists by which rows can be sorted, for completion.
std::vector<std::string> SortColumns();

// INVALID_ARGUMENT: the kind of list has no such column or value, or the user does not exist.
Status CheckSelection(const Selection& selection);
// True if `text` names the device.
bool IsDevice(const v1::Device& device, const std::string& text);

// Requests page after page and prints the selected rows as one list: unsorted JSON lines page by page, everything else
// after the last page. INVALID_ARGUMENT: as CheckSelection.
using AskPage = std::function<Status(const v1::ListRequest& request, v1::ListResponse* page)>;
Status PrintListed(const Selection& selection, const Options& options, const AskPage& ask, std::ostream& out);
Status Ls(Connection& connection, const Options& options, const Selection& selection, std::ostream& out);

}  // namespace arraybridge::ctl
