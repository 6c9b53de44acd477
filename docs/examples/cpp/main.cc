// SPDX-License-Identifier: Apache-2.0
// main put|get: puts an array of float32 under a name, or gets it, without a copy.
#include <arraybridge/broker.h>

#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

using namespace arraybridge;

int Put(Broker& broker) {
  std::vector<float> numbers(4 * 256);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  const DataType float32{2, 32, 1};  // DLPack's code 2 is a floating-point number
  const auto view = Describe(numbers.data(), float32, {4, 256}, {}, {}, true, nullptr);
  if (!view.ok()) return std::puts(view.status().ToString().c_str()), 1;
  const auto share = broker.Put({&*view, 1}, {.name = "numbers", .replace = true});
  if (!share.ok()) return std::puts(share.status().ToString().c_str()), 1;
  std::printf("put %s, generation %lu\n", share->name.c_str(), static_cast<unsigned long>(share->generation));
  return 0;
}

int Get(Broker& broker) {
  ShareRef wanted;
  wanted.name = "numbers";
  const auto got = broker.Acquire(wanted);
  if (!got.ok()) return std::puts(got.status().ToString().c_str()), 1;
  const View& view = got->views[0];  // valid for as long as `got` lives, also if the daemon has ended
  const auto* numbers = static_cast<const float*>(view.data);
  const double sum = std::accumulate(numbers, numbers + view.elements(), 0.0);
  std::printf("got %s of %lu elements, sum %.0f\n", view.dtype.c_str(), static_cast<unsigned long>(view.elements()),
              sum);
  return 0;
}

int main(int count, char** words) {
  if (count != 2) return std::puts("usage: main put|get"), 64;
  Broker broker({.client = "example"});  // found as the client library finds it, or $ARRAYBRIDGE_ADDRESS
  return std::strcmp(words[1], "put") == 0 ? Put(broker) : Get(broker);
}
