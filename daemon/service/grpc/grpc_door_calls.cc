// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_door_calls.h"

namespace arraybridge::daemon {

void SessionStreams::Add(const std::shared_ptr<SessionStream>& stream) {
  bool late = false;
  {
    MutexLock lock(mutex_);
    streams_.emplace(stream.get(), stream);
    late = draining_;
  }
  if (late) stream->Drain();
}

void SessionStreams::Forget(SessionStream* stream) {
  std::shared_ptr<SessionStream> dies_unlocked;
  MutexLock lock(mutex_);
  const auto found = streams_.find(stream);
  dies_unlocked = std::move(found->second);
  streams_.erase(found);
}

void SessionStreams::Drain() {
  std::vector<std::shared_ptr<SessionStream>> open;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    for (const auto& [key, stream] : streams_) open.push_back(stream);
  }
  for (const auto& stream : open) stream->Drain();
}

// Runs under the lock: gRPC is not done with a stream until Forget has removed it.
bool SessionStreams::Cancel(SessionId session) {
  MutexLock lock(mutex_);
  for (const auto& [key, stream] : streams_) {
    if (stream->session() != session) continue;
    stream->Cancel();
    return true;
  }
  return false;
}

void SessionStream::Step(bool SessionStream::*happened) {
  bool over = false;
  bool goes_on = false;
  EndCause cause = EndCause::kDrain;
  {
    MutexLock lock(mutex_);
    if (happened != nullptr) this->*happened = true;
    if (finished_ || writing_ || !(over_ || draining_)) return;
    finished_ = true;
    over = over_;
    if (over) cause = cut_ ? EndCause::kLimit : EndCause::kClean;
    goes_on = over && is_continued_ && !opened_written_ && !cut_;
  }
  if (goes_on) {
    verbs_.sessions.AwaitAgain(session_);
  } else {
    verbs_.sessions.EndSession(session_, cause);
  }
  if (over) return Finish(grpc::Status::CANCELLED);
  event_ = BufferOf(wire::Encode(wire::SessionEvent{.draining = true}));
  StartWriteAndFinish(&event_, grpc::WriteOptions(), grpc::Status::OK);
}

}  // namespace arraybridge::daemon
