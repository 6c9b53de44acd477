// What this process tells the broker of itself, so that it is offered nothing that it cannot open.
#pragma once

#include "client/codec.h"
#include "client/memory/mapper_table.h"

namespace arraybridge {

// Initialises nothing: GPUs are named if an array has used one already.
codec::Capabilities CapabilitiesOf(const MapperTable& mappers);

}  // namespace arraybridge
