// What gRPC says for itself goes into our log, so many lines a second: strangers cause most of it at will.
#pragma once

namespace arraybridge {

// For the rest of the process.
void TakeGrpcLog();

}  // namespace arraybridge
