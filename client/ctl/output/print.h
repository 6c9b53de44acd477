// SPDX-License-Identifier: Apache-2.0
// Text for people: tables of answers, and the names in them.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "arraybridge/v1/admin.pb.h"
#include "arraybridge/v1/broker.pb.h"
#include "client/ctl/output/finding.h"
#include "client/ctl/output/table.h"

namespace arraybridge::ctl {

// "cpu", "cuda:GPU-5a5a5a5a-…".
std::string DeviceName(const v1::Device& device);
// Returns the cause; empty: the device is in service, or the broker gave no cause.
std::string WhyOutOfService(const v1::DeviceInfo& device);
// "float32[3,4]".
std::string ArrayName(const v1::ArraySpec& spec);
// In tables for people the local time of day, "14:03:59.123"; otherwise nanoseconds since 1970.
std::string TimeText(uint64_t time_ns, const Style& style);
// The name of an enumerator without its prefix, in lower case; the number, if this program does not know the name.
std::string EnumText(std::string name, std::string_view prefix, int number);
// "memfd", "cuda_vmm", "cuda_ipc".
std::string KindName(int kind);
std::string KindNames(const google::protobuf::RepeatedField<int>& kinds);

// "the keeper", "the service manager", "none".
std::string HolderName(const v1::Life& life);
// `lost`: the shares that this life of the broker lost, as far as the user may know them.
void PrintInfo(const v1::GetServerInfoResponse& info, const google::protobuf::RepeatedPtrField<v1::LostShare>& lost,
               const Style& style, std::ostream& out, bool with_header);
void PrintStats(const v1::GetStatsResponse& stats, const Style& style, std::ostream& out, bool with_header);
// Prints one row: current values, and rates per second since `earlier`, whose totals are 0 in the first round.
void PrintTop(const v1::GetStatsResponse& stats, const v1::GetStatsResponse& earlier,
              std::chrono::milliseconds interval, const Style& style, std::ostream& out);
void PrintFindings(const std::vector<Finding>& findings, const Style& style, std::ostream& out, bool with_header);

}  // namespace arraybridge::ctl
