// SPDX-License-Identifier: Apache-2.0
// Has an image inverted by the servers in Python, as ask.py does: server.py answers {"image": array, "by": process}.
#include <arraybridge/services/service.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace arraybridge;

int main() {
  Broker broker({.client = "ask.cc"});  // found as the client library finds it, or $ARRAYBRIDGE_ADDRESS
  auto caller = ServiceCaller::Open(broker, "invert");
  if (!caller.ok()) return std::puts(caller.status().ToString().c_str()), 1;
  for (const uint8_t light : {1, 2, 3}) {
    std::vector<uint8_t> image(480 * 640, light);
    const DataType uint8{1, 8, 1};  // DLPack's code 1 is an unsigned integer
    const auto view = Describe(image.data(), uint8, {480, 640}, {}, {}, true, nullptr);
    if (!view.ok()) return std::puts(view.status().ToString().c_str()), 1;
    const auto answer = caller->Call({&*view, 1}, {.timeout = std::chrono::seconds(60)});
    if (!answer.ok()) return std::puts(answer.status().ToString().c_str()), 1;
    const View& inverted = answer->views.at(0);  // valid for as long as `answer` lives
    std::printf("an image of %d: inverted %d by %s\n", light, *static_cast<const uint8_t*>(inverted.data),
                answer->sent.sender->client.c_str());
  }
  return 0;
}
