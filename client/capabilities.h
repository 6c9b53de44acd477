// What this process tells the broker of itself, so that it is offered nothing that it cannot open.
#pragma once

#include "client/codec.h"
#include "client/memory/mapper_table.h"

namespace arraybridge {

// Initialises nothing: GPUs are named if something in this process has used them already, an array of ours or a
// framework. Who opens a session before that says it later (Session::SayGpus).
codec::Capabilities CapabilitiesOf(const MapperTable& mappers);

}  // namespace arraybridge
