// How answers are shown to people.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "arraybridge/v1/broker.pb.h"
#include "client/ctl/doctor.h"

namespace arraybridge::ctl {

// "cpu", "cuda:GPU-5a5a5a5a-…".
std::string DeviceName(const v1::Device& device);
// "memfd", "cuda_vmm", "cuda_ipc".
std::string KindName(int kind);
std::string KindNames(const google::protobuf::RepeatedField<int>& kinds);

void PrintInfo(const v1::GetServerInfoResponse& info, std::ostream& out, bool with_header);
void PrintList(v1::ListRequest::Kind kind, const v1::ListResponse& answer, std::ostream& out, bool with_header);
void PrintFindings(const std::vector<Finding>& findings, std::ostream& out, bool with_header);
void PrintFindingsAsJson(const std::vector<Finding>& findings, std::ostream& out);

}  // namespace arraybridge::ctl
