// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/born/born_facts.h"

#include <algorithm>
#include <utility>

#include "client/ctl/output/table.h"

namespace arraybridge::ctl {
namespace {

constexpr char kBornArrays[] = "born arrays";
constexpr size_t kSessionsMax = 3;    // with a finding of their own
constexpr uint64_t kManyMissed = 10;  // of so many arrays one

struct Cure {
  const char* reason;
  const char* mend;
};
constexpr Cure kCures[] = {
    {"refused",
     "arraybridgectl ls namespaces shows the quota and what is charged: withdraw shares, or raise the quota"},
    {"no_room", "a larger reserve_bytes in broker.born(...): more was allocated at once than was at hand"},
    {"zeros", "np.empty where every element is written: np.zeros of more than 16 MiB is not born"},
};

using Named = google::protobuf::RepeatedPtrField<v1::BornNumber>;

uint64_t Sum(const Named& all) {
  uint64_t sum = 0;
  for (const v1::BornNumber& each : all) sum += each.number();
  return sum;
}

uint64_t MissedOf(const v1::SessionInfo& session, const std::string& reason) {
  for (const v1::BornNumber& each : session.born().missed()) {
    if (each.name() == reason) return each.number();
  }
  return 0;
}

// Large zeros miss by intent, so that they alone are no reason for a note.
bool IsNotable(const v1::SessionInfo& session) {
  const uint64_t missed = Sum(session.born().missed()) - MissedOf(session, "zeros");
  return MissedOf(session, "refused") > 0 || missed * kManyMissed > session.born().arrays();
}

Finding OnAll(const std::vector<v1::SessionInfo>& sessions) {
  uint64_t arrays = 0;
  uint64_t bytes = 0;
  uint64_t missed = 0;
  for (const v1::SessionInfo& session : sessions) {
    arrays += session.born().arrays();
    bytes += BornBytes(session);
    missed += Sum(session.born().missed());
  }
  return {kBornArrays, Health::kOk,
          Concat(arrays, " of ", HumanSize(bytes), " in ", sessions.size(),
                 sessions.size() == 1 ? " session" : " sessions", "; ", missed, " found no broker memory"),
          ""};
}

Finding OnSession(const v1::SessionInfo& session) {
  Finding finding{kBornArrays, Health::kNote, "", ""};
  finding.text =
      Concat("session ", session.session(), " (", session.client(), ", process ", session.process_id(),
             "): ", MissedText(session), " of ", session.born().arrays() + Sum(session.born().missed()),
             " arrays found no broker memory, ", HumanSize(session.born().missed_bytes()), ": their put copies");
  for (const auto& [reason, mend] : kCures) {
    if (MissedOf(session, reason) == 0) continue;
    finding.mend = mend;
    break;
  }
  return finding;
}

}  // namespace

uint64_t BornBytes(const v1::SessionInfo& session) { return Sum(session.born().bytes()); }

std::string BornText(const v1::SessionInfo& session) {
  std::string text;
  for (const v1::BornNumber& each : session.born().bytes()) {
    text += Concat(text.empty() ? "" : ", ", each.name(), " ", HumanSize(each.number()));
  }
  return text;
}

std::string MissedText(const v1::SessionInfo& session) {
  std::string text;
  for (const v1::BornNumber& each : session.born().missed()) {
    text += Concat(text.empty() ? "" : ", ", each.number(), " ", each.name());
  }
  return text;
}

std::vector<Finding> ExamineBorn(std::vector<v1::SessionInfo> sessions) {
  std::erase_if(sessions, [](const v1::SessionInfo& session) { return !session.has_born(); });
  if (sessions.empty()) return {};
  std::vector<Finding> findings{OnAll(sessions)};
  std::erase_if(sessions, [](const v1::SessionInfo& session) { return !IsNotable(session); });
  std::ranges::stable_sort(sessions, std::ranges::greater(),
                           [](const v1::SessionInfo& session) { return session.born().missed_bytes(); });
  if (sessions.size() > kSessionsMax) sessions.resize(kSessionsMax);
  for (const v1::SessionInfo& session : sessions) findings.push_back(OnSession(session));
  return findings;
}

std::vector<Finding> ExamineBorn(Connection& connection) {
  v1::ListRequest request;
  request.set_kind(v1::ListRequest::SESSIONS);
  const auto listed = connection.List(std::move(request));
  if (!listed.ok()) return {};
  return ExamineBorn(std::vector(listed->sessions().begin(), listed->sessions().end()));
}

}  // namespace arraybridge::ctl
