// The fork guard makes fork survivable: what must not cross it registers as a ForkParticipant and is told. The one
// place of process-wide state in the client, because pthread_atfork knows no object.
//
// The child never uses what it inherited: every lock may be held by a thread that it does not have. So nothing is
// repaired there, it is replaced: sockets are closed, writable maps made private, the connection forgotten (and leaked,
// since arrays of the parent still point into it) and a new one made on first use. Only this guard's own lock, and the
// short one around each Broker's connection, are taken before the fork and freed on both sides after it.
#pragma once

#include <cstdint>

#include "proto/boundary/mutex.h"

namespace arraybridge {

class ForkParticipant {
 public:
  virtual ~ForkParticipant() = default;

  virtual void BeforeFork() noexcept {}
  // `child_life` reads EOF when the child, and everybody it forked, has exited or called exec; -1: unknown. The
  // descriptor stays the caller's.
  virtual void AfterForkInParent(int /*child_life*/) noexcept {}
  virtual void AfterForkInChild() noexcept {}
};

// How many forks lie between this process and the one that loaded the library. Async-signal-safe.
uint64_t ForkGeneration();

// Told of every fork until it leaves. No callback runs after Leave. REQUIRES: neither is called from a callback.
void JoinForkGuard(ForkParticipant* participant);
void LeaveForkGuard(ForkParticipant* participant);

// While it lives no fork happens: for "make a descriptor and register it" in one step.
class NoForkHere {
 public:
  NoForkHere();
  ~NoForkHere();
  NoForkHere(const NoForkHere&) = delete;
  NoForkHere& operator=(const NoForkHere&) = delete;

  // As JoinForkGuard, with the lock held already.
  void Join(ForkParticipant* participant);
};

}  // namespace arraybridge
