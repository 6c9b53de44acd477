// SPDX-License-Identifier: Apache-2.0
// arraybridgectl sends requests to a running broker through its public or administration socket. It starts none.
#include <malloc.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "client/ctl/admin/admin.h"
#include "client/ctl/command_line.h"
#include "client/ctl/commands.h"
#include "client/ctl/services/service_commands.h"
#include "proto/boundary/nearest.h"
#include "proto/boundary/result.h"
#include "proto/boundary/standard_descriptors.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

// Exit statuses, for scripts.
enum ExitCode : int {
  kDone = 0,
  kError = 1,
  kUsage = 2,
  kCannotConnect = 3,
  kPermission = 4,
  kNotFound = 5,
  kResourceExhausted = 6,
  kTimeout = 7,
};

ExitCode ExitCodeOf(const Status& status) {
  if (status.reason() == kUsageReason) return kUsage;
  switch (status.code()) {
    case Code::kOk:
      return kDone;
    case Code::kUnavailable:
      return kCannotConnect;
    case Code::kPermissionDenied:
    case Code::kUnauthenticated:
      return kPermission;
    case Code::kNotFound:
      return kNotFound;
    case Code::kResourceExhausted:
      return kResourceExhausted;
    case Code::kDeadlineExceeded:
      return kTimeout;
    default:
      return kError;
  }
}

// The nearest of the names on the first page of what the lister lists, as a question; empty without one.
std::string Guess(const Options& options, const Chosen& chosen) {
  constexpr uint32_t kNamesMax = 1000;
  const auto connection = Connect(options);
  if (chosen.named.empty() || !connection.ok()) return {};
  v1::ListRequest request;
  request.set_kind(chosen.lister == "ls" ? v1::ListRequest::SHARES : v1::ListRequest::CHANNELS);
  request.set_namespace_(options.ns.empty() ? "default" : options.ns);
  request.set_page_size(kNamesMax);
  v1::ListResponse page;
  if (!(*connection)->ListPage(request, &page).ok()) return {};
  std::vector<std::string> names;
  for (const auto& row : page.shares()) names.push_back(row.share().name());
  for (const auto& row : page.channels()) names.push_back(NameToShow(row.name(), chosen.lister));
  if (std::ranges::find(names, chosen.named) != names.end()) return {};  // its generation or its array is not there
  return Printable(DidYouMean(chosen.named, names, EditsOf(chosen.named)));
}

// The next step of the user, as the end of an error.
std::string Advice(const Status& status, const Options& options, const Chosen& chosen) {
  if (status.code() == Code::kNotFound && !chosen.lister.empty()) {
    return Concat("; ", Guess(options, chosen), "arraybridgectl ", chosen.lister, " lists what there is");
  }
  if (status.reason() == kNoConnectionReason) {
    return "; arraybridged --directory DIR starts a broker, arraybridgectl doctor looks for the cause";
  }
  return {};
}

Status Run(const CommandLine& line) {
  const Options& options = line.options();
  const Chosen& chosen = line.chosen();
  if (chosen.local != nullptr) return chosen.local(options, std::cout);
  if (chosen.admin != nullptr) {
    const auto connection = ConnectAdmin(options);
    return connection.ok() ? chosen.admin(**connection, options, line.admin(), std::cout) : connection.status();
  }
  const auto connection = Connect(options);
  return connection.ok() ? chosen.command(**connection, options, std::cout) : connection.status();
}

// A list comes in pages of some megabytes, and each is freed before the next. An allocator that returned them to the
// kernel in between would have them mapped and cleared again for each page, which takes as long as the text of the
// rows.
void KeepFreedMemory() {
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  ::mallopt(M_MMAP_THRESHOLD, 16 << 20);
}

int Main(int argc, char** argv) {
  FillStandardDescriptors();
  KeepFreedMemory();
  CommandLine line;
  if (const int* const code = line.Parse(argc, argv); code != nullptr) return *code;
  Status status = Run(line);
  std::cout.flush();
  if (status.ok() && !std::cout) status = Internal("the output could not be written");
  if (!status.ok()) {
    std::cerr << "arraybridgectl: " << status.message() << Advice(status, line.options(), line.chosen()) << '\n';
  }
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace arraybridge::ctl

int main(int argc, char** argv) { return arraybridge::ctl::Main(argc, argv); }
