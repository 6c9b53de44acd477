// SPDX-License-Identifier: Apache-2.0
// The capabilities that this process states to the broker, so that the broker offers only memory that it can open.
#pragma once

#include "client/memory/mapper_table.h"
#include "client/wire/codec.h"

namespace arraybridge {

// Initialises no GPU. GPUs are listed only if this process has already used one, through this library or a framework. A
// session that was opened earlier reports them later (Session::ReportGpus).
codec::Capabilities CapabilitiesOf(const MapperTable& mappers);

}  // namespace arraybridge
