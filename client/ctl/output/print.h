// How answers are shown to people.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "client/ctl/output/finding.h"
#include "client/ctl/output/table.h"

namespace arraybridge::ctl {

// "cpu", "cuda:GPU-5a5a5a5a-…".
std::string DeviceName(const v1::Device& device);
// Empty: it is in service, or the broker did not say.
std::string WhyOutOfService(const v1::DeviceInfo& device);
// "float32[3,4]".
std::string ArrayName(const v1::ArraySpec& spec);
// For people the local time of day, "14:03:59.123"; else the nanoseconds since 1970 themselves.
std::string TimeText(uint64_t time_ns, const Style& style);
// "memfd", "cuda_vmm", "cuda_ipc".
std::string KindName(int kind);
std::string KindNames(const google::protobuf::RepeatedField<int>& kinds);

void PrintInfo(const v1::GetServerInfoResponse& info, const Style& style, std::ostream& out, bool with_header);
void PrintStats(const v1::GetStatsResponse& stats, const Style& style, std::ostream& out, bool with_header);
// One row: what there is, and how much of it happened each second since `earlier`, whose totals are 0 if there is none.
void PrintTop(const v1::GetStatsResponse& stats, const v1::GetStatsResponse& earlier,
              std::chrono::milliseconds interval, const Style& style, std::ostream& out);
void PrintFindings(const std::vector<Finding>& findings, const Style& style, std::ostream& out, bool with_header);
// `lines`: an object a line; else one list.
void PrintFindingsAsJson(const std::vector<Finding>& findings, bool lines, std::ostream& out);

}  // namespace arraybridge::ctl
