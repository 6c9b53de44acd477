// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/python/python_commands.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "client/ctl/child.h"
#include "proto/boundary/text.h"

namespace arraybridge::ctl {
namespace {

using Words = std::vector<std::string>;

// Adds an option that has a value.
void Add(std::string_view option, const std::string& value, Words& words) {
  if (!value.empty()) words.push_back(Concat(option, "=", value));
}

// All words of a command, and the token in the environment, because all users can read arguments.
Result<Words> Prepared(const std::string& name, const Words& own, const Options& options) {
  if (options.output != Output::kTable && options.output != Output::kJson) {
    return InvalidArgument(name, " prints a table or json").Because(kUsageReason);
  }
  Words words = {name};
  Add("--address", options.address, words);
  if (IsJson(options)) words.emplace_back("--output=json");
  Add("--namespace", options.ns, words);
  words.insert(words.end(), own.begin(), own.end());
  if (!options.token.empty()) ::setenv("ARRAYBRIDGE_TOKEN", options.token.c_str(), 1);
  return words;
}

Status Become(const std::string& name, const Words& own, const Options& options) {
  AB_ASSIGN_OR_RETURN(const Words words, Prepared(name, own, options));
  Words program = PythonWords(words);
  std::vector<char*> arguments;
  arguments.reserve(program.size() + 1);
  for (std::string& word : program) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return NotFound(name, " needs Python: there is no ", program.front());
}

}  // namespace

Status Load(const Options& options, const LoadWishes& wishes) {
  Words own;
  Add("--name", wishes.name, own);
  if (wishes.sha256) own.emplace_back("--sha256");
  if (wishes.replace) own.emplace_back("--replace");
  Add("--device", wishes.device, own);
  own.emplace_back("--");
  own.insert(own.end(), wishes.files.begin(), wishes.files.end());
  AB_ASSIGN_OR_RETURN(const Words words, Prepared("load", own, options));
  const auto ended = RunPython(words);
  if (!ended.ok()) return Status(ended.status().code(), Concat("load needs Python: ", ended.status().message()));
  if (*ended == 0) return Ok();
  return FailedPrecondition(PythonProgram(),
                            " -m arraybridge load found a problem, or this Python has no arraybridge (exit status ",
                            *ended, ")");
}

Status Record(const Options& options, const RecordWishes& wishes) {
  Words words = {Concat("--file=", wishes.file)};
  Add("--compression", wishes.compression, words);
  Add("--seconds", wishes.seconds, words);
  Add("--nice", wishes.nice, words);
  if (wishes.foxglove) words.emplace_back("--foxglove");
  if (wishes.follow) words.emplace_back("--follow");
  if (wishes.replace) words.emplace_back("--replace");
  words.emplace_back("--");
  words.insert(words.end(), wishes.channels.begin(), wishes.channels.end());
  return Become("record", words, options);
}

Status Replay(const Options& options, const ReplayWishes& wishes) {
  Words words;
  Add("--speed", wishes.speed, words);
  Add("--from", wishes.from, words);
  Add("--to", wishes.to, words);
  Add("--mode", wishes.mode, words);
  Add("--wait", wishes.wait, words);
  for (const std::string& each : wishes.renamed) Add("--rename", each, words);
  words.insert(words.end(), {"--", wishes.file});
  words.insert(words.end(), wishes.channels.begin(), wishes.channels.end());
  return Become("replay", words, options);
}

}  // namespace arraybridge::ctl
