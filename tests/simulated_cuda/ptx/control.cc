// SPDX-License-Identifier: Apache-2.0
// Branches, calls, and barriers of a block.
#include "tests/simulated_cuda/ptx/builtin.h"
#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated::ptx {
namespace {

size_t StepAt(Decoder& d, const std::string& label) {
  const auto found = d.function.labels.find(label);
  if (found != d.function.labels.end()) return found->second;
  d.Refuse("the label '" + label + "' is unknown");
  return 0;
}

void DecodeBranch(Decoder& d) {
  d.Ignore({"uni"});
  d.run = [step = StepAt(d, d.At(0).name)](Thread& t) { t.Jump(step); };
}

// To one of a list of labels.
void DecodeIndexedBranch(Decoder& d) {
  d.Ignore({"idx", "uni"});
  std::vector<size_t> steps;
  const auto list = d.function.branchings.find(d.At(1).name);
  if (list == d.function.branchings.end()) return d.Refuse("its list of labels is unknown");
  for (const std::string& label : list->second) steps.push_back(StepAt(d, label));
  d.run = [steps, which = d.SourceAt(0, {TypeKind::kUnsigned, 4})](Thread& t) {
    const auto index = static_cast<uint32_t>(which.Of(t));
    if (index < steps.size()) return t.Jump(steps[index]);
    t.Fail(cuda::CUDA_ERROR_INVALID_PC, "a branch beyond its list of labels");
  };
}

// One value between the operand of a call and the callee's parameter or result.
Passed PassedBetween(Decoder& d, const Operand& operand, const Formal& formal, bool to_callee) {
  const bool in_register = operand.kind == OperandKind::kRegister;
  if (!in_register && operand.kind != OperandKind::kVariable) d.Refuse("'" + operand.name + "' cannot be passed");
  const uint64_t here = in_register ? operand.index : operand.variable == nullptr ? 0 : operand.variable->address;
  const bool formal_in_register = formal.variable == nullptr;
  const uint64_t there = formal_in_register ? formal.index : formal.variable->address;
  if (to_callee) return {in_register, formal_in_register, here, there, formal.bytes()};
  return {formal_in_register, in_register, there, here, formal.bytes()};
}

std::vector<Passed> PassedList(Decoder& d, const Operand* list, const std::vector<Formal>& formals, bool to_callee) {
  std::vector<Passed> passed;
  if ((list == nullptr ? 0 : list->parts.size()) != formals.size()) d.Refuse("the number of its parameters is wrong");
  for (size_t i = 0; list != nullptr && i < formals.size() && i < list->parts.size(); ++i) {
    passed.push_back(PassedBetween(d, list->parts[i], formals[i], to_callee));
  }
  return passed;
}

void DecodeCall(Decoder& d) {
  d.Ignore({"uni"});
  const size_t first = d.At(0).kind == OperandKind::kVector ? 1 : 0;
  const Operand* results = first == 1 ? &d.At(0) : nullptr;
  const Operand* arguments = d.operands() > first + 1 ? &d.At(first + 1) : nullptr;
  const std::string& name = d.At(first).name;
  const auto declared = d.linkage.program->functions.find(name);
  if (declared == d.linkage.program->functions.end()) return d.Refuse("the function '" + name + "' is unknown");
  const Function& callee = *declared->second;
  if (!callee.defined) {
    d.run = Builtin(name, results, arguments);
    if (d.run == nullptr) d.Refuse("the function '" + name + "' is defined in no module");
    return;
  }
  const Code& code = d.linkage.codes->at(name);
  d.run = [&code, in = PassedList(d, arguments, callee.parameters, true),
           out = PassedList(d, results, callee.results, false)](Thread& t) { t.Call(code, in, out); };
}

void DecodeReturn(Decoder& d) {
  d.Ignore({"uni"});
  d.run = [](Thread& t) { t.Return(); };
}

void DecodeExit(Decoder& d) {
  d.run = [](Thread& t) { t.Exit(); };
}

void DecodeTrap(Decoder& d) {
  d.run = [](Thread& t) { t.Fail(cuda::CUDA_ERROR_LAUNCH_FAILED, "the kernel trapped"); };
}

// `bar.red`: the threads' predicates are combined.
void DecodeBarrierVote(Decoder& d) {
  const std::string_view way = d.OneOf({"popc", "and", "or"});
  d.OnlyType();
  const Type number{TypeKind::kUnsigned, 4};
  const bool counted = d.operands() == 4;
  const Source threads = counted ? d.SourceAt(2, number) : Source{};
  const Source votes = d.SourceAt(counted ? 3 : 2, {TypeKind::kPredicate, 1});
  d.run = [to = d.TargetAt(0), barrier = d.SourceAt(1, number), threads, votes, way = std::string(way)](Thread& t) {
    t.contributes = votes.Of(t) != 0;
    t.after_barrier = [to, way](Thread& thread, uint32_t yes, uint32_t all) {
      to.Put(thread, way == "popc" ? yes : way == "and" ? (yes == all ? 1 : 0) : (yes > 0 ? 1 : 0));
    };
    t.WaitAtBarrier(static_cast<uint32_t>(barrier.Of(t)), static_cast<uint32_t>(threads.Of(t)));
  };
}

void DecodeBarrier(Decoder& d) {
  if (d.Has("warp")) return TogetherOpcodes().at("bar.warp")(d);
  d.Ignore({"cta", "aligned"});
  const std::string_view what = d.OneOf({"sync", "arrive", "red"});
  if (what == "red") return DecodeBarrierVote(d);
  if (what.empty()) return d.Refuse("what it does is unknown");
  const Type number{TypeKind::kUnsigned, 4};
  const Source threads = d.operands() > 1 ? d.SourceAt(1, number) : Source{};
  d.run = [barrier = d.SourceAt(0, number), threads, arrives = what == "arrive"](Thread& t) {
    const auto which = static_cast<uint32_t>(barrier.Of(t));
    const auto count = static_cast<uint32_t>(threads.Of(t));
    arrives ? t.ArriveAtBarrier(which) : t.WaitAtBarrier(which, count);
  };
}

}  // namespace

const Opcodes& ControlOpcodes() {
  static const Opcodes opcodes = {{"bra", &DecodeBranch},  {"brx", &DecodeIndexedBranch}, {"call", &DecodeCall},
                                  {"ret", &DecodeReturn},  {"exit", &DecodeExit},         {"trap", &DecodeTrap},
                                  {"bar", &DecodeBarrier}, {"barrier", &DecodeBarrier}};
  return opcodes;
}

}  // namespace arraybridge::simulated::ptx
