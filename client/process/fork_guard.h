// SPDX-License-Identifier: Apache-2.0
// The fork guard makes the client safe across fork. An object that must not be used in the child registers as a
// ForkParticipant and is notified. This is the only process-wide state in the client, because pthread_atfork takes no
// object.
//
// The child never uses inherited objects, because a thread that does not exist in the child may hold any of their
// locks. The child replaces them instead: it closes sockets, makes writable mappings private, and forgets the
// connection. It leaks that connection, since arrays of the parent still point into it, and makes a new one on first
// use. Only the guard's own lock and the short one around each Broker's connection are taken before the fork and
// released on both sides after it.
#pragma once

#include <cstdint>

#include "proto/boundary/mutex.h"

namespace arraybridge {

class ForkParticipant {
 public:
  virtual ~ForkParticipant() = default;

  virtual void BeforeFork() noexcept {}
  // `child_life` reads EOF when the child and all its descendants have exited or called exec; -1: unknown. The caller
  // keeps the descriptor.
  virtual void AfterForkInParent(int /*child_life*/) noexcept {}
  virtual void AfterForkInChild() noexcept {}
};

// The number of forks between the process that loaded the library and this one. Async-signal-safe.
uint64_t ForkGeneration();

// The participant is notified of every fork until LeaveForkGuard, and no callback runs after that. REQUIRES: neither
// function is called from a callback.
void JoinForkGuard(ForkParticipant* participant);
void LeaveForkGuard(ForkParticipant* participant);

// No fork happens while it lives, so that a descriptor can be created and registered in one step.
class NoForkHere {
 public:
  NoForkHere();
  ~NoForkHere();
  NoForkHere(const NoForkHere&) = delete;
  NoForkHere& operator=(const NoForkHere&) = delete;

  // As JoinForkGuard, with the lock already held.
  void Join(ForkParticipant* participant);
};

}  // namespace arraybridge
