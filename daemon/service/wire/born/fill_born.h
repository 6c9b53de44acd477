// SPDX-License-Identifier: Apache-2.0
// The message of the arrays that a process made in broker memory.
#pragma once

#include "arraybridge/v1/born.pb.h"
#include "proto/boundary/layouts/born/figures.h"

namespace arraybridge::daemon {

// Leaves out numbers that are 0.
void Fill(v1::BornInfo* message, const born::Figures& figures);

}  // namespace arraybridge::daemon
