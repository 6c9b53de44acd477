// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/ptx/builtin.h"

#include <cstdio>
#include <cstring>

namespace arraybridge::simulated::ptx {
namespace {

constexpr size_t kTextMax = 65536;

// The 8 bytes that were passed as parameter `nth`.
uint64_t Argument(const Thread& t, const Operand* arguments, size_t nth) {
  if (arguments == nullptr || nth >= arguments->parts.size()) return 0;
  const Operand& operand = arguments->parts[nth];
  if (operand.kind == OperandKind::kRegister) return t.Get(operand.index);
  uint64_t value = 0;
  if (operand.variable == nullptr) return value;
  const size_t bytes = std::min<size_t>(operand.variable->bytes, sizeof(value));
  std::memcpy(&value, t.frame().params.data() + operand.variable->address, bytes);
  return value;
}

std::string TextAt(Thread& t, uint64_t address) {
  std::string text;
  while (text.size() < kTextMax) {
    const std::byte* byte = t.Memory(Space::kGeneric, address++, 1, false);
    if (byte == nullptr || *byte == std::byte{0}) break;
    text.push_back(static_cast<char>(*byte));
  }
  return text;
}

// The values of a printf, which lie one after another, each aligned to its size.
class Values {
 public:
  Values(Thread& thread, uint64_t address) : thread_(thread), address_(address) {}
  uint64_t Next(uint64_t bytes) {
    address_ = RoundUp(address_, bytes);
    uint64_t value = 0;
    const std::byte* from = thread_.Memory(Space::kGeneric, address_, bytes, false);
    if (from != nullptr) std::memcpy(&value, from, bytes);
    address_ += bytes;
    return value;
  }

 private:
  Thread& thread_;
  uint64_t address_;
};

// One conversion of a format, from its percent sign to its letter.
void PrintOne(Thread& t, const std::string& conversion, Values& values) {
  const char letter = conversion.back();
  if (letter == '%') {
    std::fputc('%', stdout);
  } else if (letter == 's') {
    std::printf(conversion.c_str(), TextAt(t, values.Next(8)).c_str());
  } else if (std::strchr("eEfFgGaA", letter) != nullptr) {
    const uint64_t bits = values.Next(8);
    double value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    std::printf(conversion.c_str(), value);
  } else if (letter == 'p' || conversion.find_first_of("ljzt") != std::string::npos) {
    std::printf(conversion.c_str(), values.Next(8));
  } else {
    std::printf(conversion.c_str(), static_cast<uint32_t>(values.Next(4)));
  }
}

void Print(Thread& t, const std::string& format, uint64_t arguments) {
  Values values(t, arguments);
  for (size_t at = 0; at < format.size();) {
    const size_t end = format[at] == '%' ? format.find_first_of("%diouxXcseEfFgGaAp", at + 1) : std::string::npos;
    if (end == std::string::npos) {
      std::fputc(format[at++], stdout);
      continue;
    }
    PrintOne(t, format.substr(at, end + 1 - at), values);
    at = end + 1;
  }
  std::fflush(stdout);
}

void PutResult(Thread& t, const Operand* results, uint32_t value) {
  if (results == nullptr || results->parts.empty()) return;
  const Operand& result = results->parts[0];
  if (result.kind == OperandKind::kRegister) return t.Put(result.index, value);
  std::memcpy(t.frame().params.data() + result.variable->address, &value, sizeof(value));
}

}  // namespace

std::function<void(Thread&)> Builtin(const std::string& name, const Operand* results, const Operand* arguments) {
  if (name == "vprintf") {
    return [results, arguments](Thread& t) {
      Print(t, TextAt(t, Argument(t, arguments, 0)), Argument(t, arguments, 1));
      PutResult(t, results, 1);
    };
  }
  if (name == "__assertfail") {
    return [arguments](Thread& t) {
      const std::string message = TextAt(t, Argument(t, arguments, 0));
      t.Fail(cuda::CUDA_ERROR_ASSERT, "the assertion '" + message + "' failed");
    };
  }
  return nullptr;
}

}  // namespace arraybridge::simulated::ptx
