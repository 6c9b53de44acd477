// SPDX-License-Identifier: Apache-2.0
#include "client/process/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace arraybridge {
namespace {

struct Guard {
  std::mutex mutex;  // not annotated: held from one fork handler to the next
  std::vector<ForkParticipant*> participants;
  int life[2] = {-1, -1};  // pipe that tells the end of the child being made
  std::atomic<uint64_t> generation{0};
};

void Prepare();
void InParent();
void InChild();

// Never destroyed: a fork may happen while the process exits.
Guard& TheGuard() {
  static Guard* const guard = [] {
    ::pthread_atfork(Prepare, InParent, InChild);
    return new Guard;
  }();
  return *guard;
}

void Prepare() {
  Guard& guard = TheGuard();
  guard.mutex.lock();
  // If no descriptors are left, the parent is not notified of the child's end and keeps nothing for the child.
  if (::pipe2(guard.life, O_CLOEXEC) != 0) guard.life[0] = guard.life[1] = -1;
  for (ForkParticipant* participant : guard.participants) participant->BeforeFork();
}

void InParent() {
  Guard& guard = TheGuard();
  if (guard.life[1] >= 0) ::close(guard.life[1]);
  for (ForkParticipant* participant : guard.participants) participant->AfterForkInParent(guard.life[0]);
  if (guard.life[0] >= 0) ::close(guard.life[0]);
  guard.mutex.unlock();
}

// The write end stays open in the child until the child exits or calls exec.
void InChild() {
  Guard& guard = TheGuard();
  guard.generation.fetch_add(1, std::memory_order_relaxed);
  if (guard.life[0] >= 0) ::close(guard.life[0]);
  for (ForkParticipant* participant : guard.participants) participant->AfterForkInChild();
  guard.mutex.unlock();
}

}  // namespace

uint64_t ForkGeneration() { return TheGuard().generation.load(std::memory_order_relaxed); }

void JoinForkGuard(ForkParticipant* participant) { NoForkHere().Join(participant); }

void LeaveForkGuard(ForkParticipant* participant) {
  NoForkHere here;
  auto& all = TheGuard().participants;
  all.erase(std::remove(all.begin(), all.end(), participant), all.end());
}

NoForkHere::NoForkHere() { TheGuard().mutex.lock(); }

NoForkHere::~NoForkHere() { TheGuard().mutex.unlock(); }

void NoForkHere::Join(ForkParticipant* participant) { TheGuard().participants.push_back(participant); }

}  // namespace arraybridge
