// How an answer looks as a table.
#pragma once

#include <iosfwd>

#include "arraybridge/v1/broker.pb.h"

namespace arraybridge::ctl {

void PrintInfo(const v1::GetServerInfoResponse& info, std::ostream& out, bool with_header);
void PrintList(v1::ListRequest::Kind kind, const v1::ListResponse& answer, std::ostream& out, bool with_header);

}  // namespace arraybridge::ctl
