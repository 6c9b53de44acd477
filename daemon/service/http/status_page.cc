// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/http/status_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "daemon/service/http/overview.h"
#include "daemon/service/telemetry/size_text.h"
#include "proto/boundary/text.h"

namespace arraybridge::daemon {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>arraybridged</title><link rel="stylesheet" href="status.css"><script src="status.js" type="module"></script>
<noscript><meta http-equiv="refresh" content="5"></noscript></head><body><div id="live"></div><main id="tables">
)";

std::string EscapedHtml(std::string_view text) {
  std::string out;
  for (const char letter : Printable(std::string(text))) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

std::string Age(std::chrono::nanoseconds age) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(age).count();
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

std::string Bar(uint64_t used, uint64_t of) {
  return fmt::format("<meter min=\"0\" max=\"{0}\" high=\"{1}\" value=\"{2}\">{2} of {0}</meter>",
                     std::max<uint64_t>(of, 1), of / 10 * 9, used);
}

std::string Lost(const DeviceFacts& device) {
  const auto failed = std::ranges::find(device.refused, RefusalCause::kFailed, &DeviceFacts::Refused::cause);
  const std::string why = failed == device.refused.end() ? "" : ": " + EscapedHtml(failed->why);
  return " class=bad>out of service" + why;
}

std::string Devices(const std::vector<DeviceFacts>& devices) {
  std::string out =
      "<h2>Memory</h2><table><tr><th>device<th>in use<th class=n>allocated<th class=n>capacity<th "
      "class=n>warm<th>state\n";
  for (const DeviceFacts& device : devices) {
    const std::string name =
        device.device.type == kDeviceCpu ? "host" : fmt::format("cuda:{} {}", device.device.id, device.device.uuid);
    out += fmt::format("<tr><td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td{}\n", EscapedHtml(name),
                       Bar(device.allocated_bytes, device.capacity_bytes), SizeText(device.allocated_bytes),
                       SizeText(device.capacity_bytes), SizeText(device.cached_bytes),
                       device.out_of_service ? Lost(device) : ">serving");
  }
  return out + "</table>\n";
}

std::string Users(const Config& config, const std::vector<NamespaceRow>& rows) {
  const auto sums = SumByOwner(rows, config.http_namespaces);
  std::string out =
      "<h2>Users</h2><table><tr><th>user<th>of its quota<th class=n>charged<th class=n>quota<th class=n>shares<th "
      "class=n>bytes in shares\n";
  for (const auto& [key, row] : sums) {
    const std::string who =
        key.second.empty() ? OwnerName(key.first) : fmt::format("{} {}", OwnerName(key.first), EscapedHtml(key.second));
    out += fmt::format("<tr><td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}\n", who,
                       Bar(row.charged_bytes, row.quota_bytes), SizeText(row.charged_bytes), SizeText(row.quota_bytes),
                       row.shares, SizeText(row.share_bytes));
  }
  if (sums.empty()) out += "<tr><td colspan=6>no user holds memory\n";
  return out + "</table>\n";
}

std::string Counts(const v1::GetStatsResponse& stats) {
  std::string out = "<h2>Now</h2><table>\n";
  for (const Counter& counter : Counters()) {
    if (counter.label.empty()) continue;
    out += fmt::format("<tr><td>{}<td class=n>{}\n", counter.label, (stats.*counter.value)());
  }
  return out + "</table>\n";
}

std::string Requests(const std::vector<Traffic::Row>& rows) {
  std::string out =
      "<h2>Requests</h2><table><tr><th>door<th>verb<th class=n>in flight<th class=n>answered<th class=n>refused<th "
      "class=n>mean\n";
  for (const Traffic::Row& row : rows) {
    uint64_t refused = 0;
    for (const Traffic::Answered& answer : row.answers) {
      if (answer.code != "OK" && answer.code != "DEADLINE_EXCEEDED") refused += answer.count;
    }
    const double mean_us =
        static_cast<double>(row.sum.count()) / 1e3 / static_cast<double>(std::max<uint64_t>(row.count, 1));
    out += fmt::format("<tr><td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{:.1f} us\n",
                       NameOf(row.door), row.verb, row.in_flight, row.count, refused, mean_us);
  }
  if (rows.empty()) out += "<tr><td colspan=6>none yet\n";
  return out + "</table>\n";
}

}  // namespace

std::string StatusPage(const Config& config, const Broker& broker, const Verbs& verbs) {
  std::string page(kHead);
  page += fmt::format("<h1>arraybridged <small>{}, up {}{}</small></h1>\n", ARRAYBRIDGE_VERSION,
                      Age(Clock::now() - verbs.lists.started()), verbs.draining() ? ", draining" : "");
  page += Devices(broker.Devices());
  page += Users(config, broker.NamespaceRows());
  page += Counts(verbs.lists.Stats());
  page += Requests(verbs.counts().traffic.Rows());
  return page + "</main></body></html>\n";
}

}  // namespace arraybridge::daemon
