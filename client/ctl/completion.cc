// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/completion.h"

#include <CLI/CLI.hpp>

namespace arraybridge::ctl {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Any word can be an option or a command; after some words only a few values fit.
std::string Cases(const CLI::App& app, const std::vector<Choices>& choices, const char* assign) {
  std::string cases;
  for (const Choices& each : choices) {
    cases += "    " + each.of + ") " + assign + "\"" + Joined(each.values) + "\" ;;\n";
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    const auto own = OptionsOf(*command);
    if (own.size() > 2)
      cases += "    " + command->get_name() + ") " + assign + "\"" + Joined(own) + "\" ;;\n";  // -h, --help
  }
  return cases + "    *) " + assign + "\"" + Joined(CommandsOf(app)) + " " + Joined(OptionsOf(app)) + "\" ;;\n";
}

std::string Bash(const CLI::App& app, const std::vector<Choices>& choices) {
  return "_arraybridgectl() {\n  local words\n  case \"${COMP_WORDS[COMP_CWORD-1]}\" in\n" +
         Cases(app, choices, "words=") +
         "  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n}\n"
         "complete -F _arraybridgectl arraybridgectl\n";
}

std::string Zsh(const CLI::App& app, const std::vector<Choices>& choices) {
  return "#compdef arraybridgectl\n_arraybridgectl() {\n  local fitting\n  case \"${words[CURRENT-1]}\" in\n" +
         Cases(app, choices, "fitting=") +
         "  esac\n  compadd -- ${=fitting}\n}\ncompdef _arraybridgectl arraybridgectl\n";
}

std::string InQuotes(const std::string& text) {
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? "\\'" : std::string(1, letter);
  return quoted + "'";
}

std::string Fish(const CLI::App& app, const std::vector<Choices>& choices) {
  std::string script;
  const std::string line = "complete -c arraybridgectl -f";
  for (const CLI::App* command : app.get_subcommands({})) {
    script += line + " -n __fish_use_subcommand -a " + command->get_name() + " -d " +
              InQuotes(command->get_description()) + "\n";
  }
  for (const CLI::Option* option : app.get_options()) {
    script += line;
    for (const std::string& name : option->get_snames()) script += " -s " + name;
    for (const std::string& name : option->get_lnames()) script += " -l " + name;
    for (const Choices& each : choices) {
      if (option->check_lname(each.of.starts_with("--") ? each.of.substr(2) : "-")) {
        script += " -x -a " + InQuotes(Joined(each.values));
      }
    }
    script += " -d " + InQuotes(option->get_description()) + "\n";
  }
  for (const Choices& each : choices) {
    if (each.of.starts_with('-')) continue;
    script += line + " -n '__fish_seen_subcommand_from " + each.of + "' -a " + InQuotes(Joined(each.values)) + "\n";
  }
  return script;
}

}  // namespace

Result<std::string> Completion(const CLI::App& app, std::vector<Choices> choices, const std::string& shell) {
  for (const CLI::App* command : app.get_subcommands({})) {
    const auto inner = CommandsOf(*command);
    if (!inner.empty()) choices.push_back({command->get_name(), inner});
  }
  if (shell == "bash") return Bash(app, choices);
  if (shell == "zsh") return Zsh(app, choices);
  if (shell == "fish") return Fish(app, choices);
  return InvalidArgument("'", shell, "' is not a supported shell: use bash, zsh or fish");
}

}  // namespace arraybridge::ctl
