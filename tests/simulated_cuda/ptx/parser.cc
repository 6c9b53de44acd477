// SPDX-License-Identifier: Apache-2.0
// The parser reads PTX as the ISA's manual describes it, up to the meaning of opcodes, which the Decoder knows. An
// unknown directive is an error that names it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "tests/simulated_cuda/ptx/program.h"
#include "tests/simulated_cuda/ptx/reader.h"

namespace arraybridge::simulated::ptx {
namespace {

const std::map<std::string_view, Space>& Spaces() {
  static const std::map<std::string_view, Space> spaces = {{"global", Space::kGlobal},
                                                           {"const", Space::kConst},
                                                           {"shared", Space::kShared},
                                                           {"local", Space::kLocal},
                                                           {"param", Space::kParam}};
  return spaces;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text) {}

  Program All() {
    while (!reader_.AtEnd()) ModuleStatement();
    const uint64_t dynamic = RoundUp(program_.shared_bytes, 128);
    for (const auto& variable : dynamic_) variable->address = dynamic;
    program_.shared_bytes = dynamic;
    program_.error = reader_.error;
    return std::move(program_);
  }

 private:
  void ModuleStatement();
  bool SkipsDebugging(const std::string& directive);
  void ParseFunction(bool entry);
  std::vector<Formal> Formals(Function& function);
  void FunctionDirectives();
  void Body(Function& function);
  void BodyStatement(Function& function);
  void Registers(Function& function);
  void ParseInstruction(Function& function, Instruction instruction);
  void Label(Function& function);
  void Variables(Function* function, Space space, bool is_extern);
  std::shared_ptr<Variable> Declarator(Function* function, Space space, Type* type);
  void Initial(Variable& variable, const Type& type);
  void InitialValue(Variable& variable, const Type& type, uint64_t* at);
  void Place(Function* function, const std::shared_ptr<Variable>& variable);

  Reader reader_;
  Program program_;
  std::vector<std::shared_ptr<Variable>> dynamic_;
};

bool Parser::SkipsDebugging(const std::string& directive) {
  static const std::set<std::string> lines = {"version", "target", "address_size", "file", "loc"};
  if (lines.contains(directive)) {
    reader_.SkipLine();
    return true;
  }
  if (directive == "pragma") {
    while (!reader_.TakeIf(';') && !reader_.AtEnd()) reader_.Take();
    return true;
  }
  if (directive != "section") return false;
  while (!reader_.Now().Is('{') && !reader_.AtEnd()) reader_.Take();
  reader_.SkipBraces();
  return true;
}

void Parser::ModuleStatement() {
  static const std::set<std::string> linkage = {"visible", "extern", "weak", "common"};
  bool is_extern = false;
  if (reader_.Now().kind != TokenKind::kDotted) {
    return reader_.Fail("a directive is expected instead of '" + std::string(reader_.Now().text) + "'");
  }
  while (linkage.contains(std::string(reader_.Now().text))) is_extern |= reader_.Take().text == "extern";
  const std::string directive(reader_.Now().text);
  if (SkipsDebugging(directive)) return;
  reader_.Take();
  if (directive == "entry" || directive == "func") return ParseFunction(directive == "entry");
  const auto space = Spaces().find(directive);
  if (space != Spaces().end()) return Variables(nullptr, space->second, is_extern);
  reader_.Fail("the directive '." + directive + "' is unknown to the simulated driver");
}

void Parser::ParseFunction(bool entry) {
  auto made = std::make_unique<Function>();
  made->entry = entry;
  reader_.OpenScope();
  if (!entry && reader_.Now().Is('(')) made->results = Formals(*made);
  made->name = reader_.Word();
  if (reader_.Now().Is('(')) made->parameters = Formals(*made);
  FunctionDirectives();
  if (!reader_.TakeIf(';')) {
    reader_.Expect('{');
    made->defined = true;
    Body(*made);
  }
  reader_.CloseScope();
  auto& known = program_.functions[made->name];
  if (known == nullptr || made->defined) known = std::move(made);
}

// Parameters or results, in parentheses.
std::vector<Formal> Parser::Formals(Function& function) {
  std::vector<Formal> formals;
  reader_.Expect('(');
  while (!reader_.TakeIf(')') && !reader_.AtEnd()) {
    Type type;
    if (reader_.TakeIfDotted("reg")) {
      if (!ParseType(reader_.Take().text, &type)) reader_.Fail("a type is expected");
      formals.push_back({nullptr, function.registers++});
      reader_.Declare(reader_.Word(), {nullptr, formals.back().index});
    } else {
      if (!reader_.TakeIfDotted("param")) reader_.Fail("a parameter is expected");
      formals.push_back({Declarator(&function, Space::kParam, &type)});
    }
    if (!reader_.Now().Is(')')) reader_.Expect(',');
  }
  return formals;
}

// Directives between a function's head and its body: they concern performance alone.
void Parser::FunctionDirectives() {
  static const std::set<std::string_view> known = {
      "maxntid",           "minnctapersm",    "maxnctapersm",   "reqntid",           "maxnreg", "noreturn",
      "reqnctapercluster", "explicitcluster", "maxclusterrank", "blocksareclusters", "pragma",  "abi_preserve"};
  while (reader_.Now().kind == TokenKind::kDotted && !reader_.AtEnd()) {
    const std::string_view directive = reader_.Take().text;
    if (!known.contains(directive)) reader_.Fail("the directive '." + std::string(directive) + "' is unknown");
    while (reader_.Now().kind == TokenKind::kNumber || reader_.Now().kind == TokenKind::kText ||
           reader_.Now().Is(',')) {
      reader_.Take();
    }
    if (directive == "pragma") reader_.TakeIf(';');
  }
}

void Parser::Body(Function& function) {
  int depth = 1;
  while (depth > 0 && !reader_.AtEnd()) {
    if (reader_.TakeIf('{')) {
      reader_.OpenScope();
      ++depth;
    } else if (reader_.TakeIf('}')) {
      if (--depth > 0) reader_.CloseScope();
    } else {
      BodyStatement(function);
    }
  }
  if (depth > 0) reader_.Fail("the body of '" + function.name + "' has no end");
}

void Parser::BodyStatement(Function& function) {
  if (reader_.Now().kind == TokenKind::kDotted) {
    const std::string directive(reader_.Now().text);
    if (SkipsDebugging(directive)) return;
    reader_.Take();
    if (directive == "reg") return Registers(function);
    const auto space = Spaces().find(directive);
    if (space != Spaces().end()) return Variables(&function, space->second, false);
    return reader_.Fail("the directive '." + directive + "' is unknown to the simulated driver");
  }
  if (reader_.TakeIf(';')) return;
  Instruction instruction;
  if (reader_.TakeIf('@')) {
    instruction.guarded = true;
    instruction.guard_negated = reader_.TakeIf('!');
    const Operand guard = reader_.ParseOperand();
    if (guard.kind != OperandKind::kRegister) reader_.Fail("'" + guard.name + "' is not a predicate");
    instruction.guard = guard.index;
  } else if (reader_.Now(1).Is(':')) {
    return Label(function);
  }
  ParseInstruction(function, std::move(instruction));
}

// `name:`, perhaps with a list of labels.
void Parser::Label(Function& function) {
  const std::string name = reader_.Word();
  reader_.Expect(':');
  if (reader_.TakeIfDotted("branchtargets")) {
    std::vector<std::string>& targets = function.branchings[name];
    do targets.push_back(reader_.Word());
    while (reader_.TakeIf(','));
    return reader_.Expect(';');
  }
  if (reader_.TakeIfDotted("callprototype")) {
    while (!reader_.TakeIf(';') && !reader_.AtEnd()) reader_.Take();
    return;
  }
  function.labels[name] = function.body.size();
}

void Parser::Registers(Function& function) {
  Type type;
  if (reader_.Now().kind == TokenKind::kDotted && !ParseType(reader_.Now().text, &type)) {
    return reader_.Fail("the type '." + std::string(reader_.Now().text) + "' of registers is unknown");
  }
  reader_.Take();
  do {
    const std::string name = reader_.Word();
    if (!reader_.TakeIf('<')) {
      reader_.Declare(name, {nullptr, function.registers++});
      continue;
    }
    const int64_t count = reader_.Integer();
    reader_.Expect('>');
    if (count < 0 || count > 1 << 20) return reader_.Fail("that many registers cannot be");
    for (int64_t i = 0; i < count; ++i) reader_.Declare(name + std::to_string(i), {nullptr, function.registers++});
  } while (reader_.TakeIf(',') && !reader_.AtEnd());
  reader_.Expect(';');
}

void Parser::ParseInstruction(Function& function, Instruction instruction) {
  instruction.line = reader_.Now().line;
  instruction.opcode = reader_.Word();
  while (reader_.Now().kind == TokenKind::kDotted) instruction.modifiers.emplace_back(reader_.Take().text);
  while (!reader_.TakeIf(';') && !reader_.AtEnd()) {
    instruction.operands.push_back(reader_.ParseOperand());
    if (!reader_.TakeIf('|') && !reader_.Now().Is(';')) reader_.Expect(',');
  }
  function.body.push_back(std::move(instruction));
}

void Parser::Variables(Function* function, Space space, bool is_extern) {
  Type type;
  do {
    const auto variable = Declarator(function, space, &type);
    variable->is_extern = is_extern;
    if (space == Space::kParam) continue;
    if (reader_.TakeIf('=')) Initial(*variable, type);
    Place(function, variable);
  } while (reader_.TakeIf(',') && !reader_.AtEnd());
  reader_.Expect(';');
}

// Alignment, type, name and size. `type` is of the declarator before, if this one has none.
std::shared_ptr<Variable> Parser::Declarator(Function* function, Space space, Type* type) {
  auto variable = std::make_shared<Variable>(Variable{.name = {}, .space = space});
  uint64_t count = 1;
  bool pointee = false;
  while (reader_.Now().kind == TokenKind::kDotted && !reader_.AtEnd()) {
    const std::string word(reader_.Take().text);
    if (word == "align") {
      const auto align = static_cast<uint64_t>(reader_.Integer());
      if (!pointee) variable->align = align;
    } else if (word == "ptr") {
      pointee = true;
    } else if (word == "v2" || word == "v4") {
      count = word == "v2" ? 2 : 4;
    } else if (!ParseType(word, type) && !(pointee && Spaces().contains(word))) {
      reader_.Fail("'." + word + "' is unknown in the declaration of a variable");
    }
  }
  variable->name = reader_.Word();
  while (reader_.TakeIf('[')) {
    if (reader_.TakeIf(']')) {
      variable->sized_at_launch = true;
      continue;
    }
    count *= static_cast<uint64_t>(reader_.Integer());
    reader_.Expect(']');
  }
  if (type->bytes == 0) reader_.Fail("'" + variable->name + "' has no type");
  variable->bytes = variable->sized_at_launch ? 0 : count * type->bytes;
  variable->align = std::max<uint64_t>(variable->align, std::max(type->bytes, 1U));
  if (space == Space::kParam && function != nullptr) {
    variable->address = RoundUp(function->param_bytes, variable->align);
    function->param_bytes = variable->address + variable->bytes;
  }
  reader_.Declare(variable->name, {variable});
  return variable;
}

void Parser::Initial(Variable& variable, const Type& type) {
  uint64_t at = 0;
  int depth = 0;
  do {
    if (reader_.TakeIf('{')) {
      ++depth;
    } else if (reader_.TakeIf('}')) {
      --depth;
    } else if (!reader_.TakeIf(',')) {
      InitialValue(variable, type, &at);
    }
  } while (depth > 0 && !reader_.AtEnd());
  variable.bytes = std::max<uint64_t>(variable.bytes, at);
  variable.initial.resize(variable.bytes);
}

void Parser::InitialValue(Variable& variable, const Type& type, uint64_t* at) {
  const uint64_t offset = *at;
  *at += type.bytes;
  variable.initial.resize(std::max<uint64_t>(variable.initial.size(), *at));
  Operand value = reader_.ParseOperand();
  const bool generic = value.name == "generic" && reader_.TakeIf('(');
  if (generic) {
    value = reader_.ParseOperand();
    reader_.Expect(')');
    if (reader_.TakeIf('+')) value.added = reader_.Integer();
  }
  if (value.kind == OperandKind::kName || value.kind == OperandKind::kVariable) {
    variable.relocations.push_back({offset, value.name, value.added, type.bytes, generic});
    return;
  }
  uint64_t bits = value.integer;
  if (value.kind == OperandKind::kReal) {
    bits =
        type.bytes == 8 ? std::bit_cast<uint64_t>(value.real) : std::bit_cast<uint32_t>(static_cast<float>(value.real));
  }
  std::memcpy(variable.initial.data() + offset, &bits, std::min<size_t>(type.bytes, sizeof(bits)));
}

// Gives the variable its address, as far as the text determines it.
void Parser::Place(Function* function, const std::shared_ptr<Variable>& variable) {
  switch (variable->space) {
    case Space::kShared:
      if (variable->sized_at_launch) {
        dynamic_.push_back(variable);
        return;
      }
      variable->address = RoundUp(program_.shared_bytes, variable->align);
      program_.shared_bytes = variable->address + variable->bytes;
      if (function != nullptr) function->shared_bytes += variable->bytes;
      return;
    case Space::kLocal:
      if (function == nullptr) return reader_.Fail("a local variable outside of functions is not simulated");
      variable->address = RoundUp(function->local_bytes, variable->align);
      function->local_bytes = variable->address + variable->bytes;
      return;
    default:
      program_.variables.push_back(variable);
  }
}

}  // namespace

Program Parse(std::string_view text) { return Parser(text).All(); }

}  // namespace arraybridge::simulated::ptx
