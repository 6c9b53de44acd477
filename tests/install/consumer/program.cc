// SPDX-License-Identifier: Apache-2.0
// program ADDRESS: gets the array that the C program put, using both headers.
#include <arraybridge/arraybridge.h>
#include <arraybridge/broker.h>

#include <cstdio>

int main(int, char** argv) {
  arraybridge::Broker broker({.address = argv[1]});
  arraybridge::ShareRef wanted;
  wanted.name = "from c";
  const auto got = broker.Acquire(wanted);
  if (!got.ok()) return std::puts(got.status().ToString().c_str()), 1;
  std::printf("%g %s\n", static_cast<double>(static_cast<const float*>(got->views[0].data)[5]),
              got->share->arrays[0].dtype.c_str());
}
