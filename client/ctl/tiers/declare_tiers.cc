// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <CLI/CLI.hpp>

#include "client/ctl/command_line.h"
#include "client/ctl/tiers/tier_commands.h"

namespace arraybridge::ctl {

void CommandLine::DeclareTiers() {
  auto* const tier = app_.add_subcommand("tier", "list and move the bytes of shares that are in files");
  tier->require_subcommand(1);
  using TierCommand = Status (*)(Connection&, const Options&, const ShareArgument&, std::ostream&);
  const auto add = [&](const char* name, const char* help, TierCommand asks) {
    return Add(*tier, name, help, [this, asks](Connection& connection, const Options& options, std::ostream& out) {
      return asks(connection, options, share_, out);
    });
  };
  add("ls", "list the shares of a namespace that have a file, and what the files use", TierLs);
  auto* const out = add("out", "move the bytes of a share from memory to a file", TierOut);
  auto* const in = add("in", "read the bytes of a share from its file into memory", TierIn);
  auto* const keep = add("keep", "write a file beside the memory, which a later broker finds", TierKeep);
  for (auto* const each : {out, in, keep}) {
    each->add_option("SHARE", share_.name, "its name, in the namespace of -n or in 'default'")->required();
  }
  const auto pin = std::make_shared<PinArgument>();
  auto* const pins = Add(*tier, "pin", "say which bytes leave memory first when room is wanted",
                         [pin](Connection& connection, const Options& options, std::ostream& to) {
                           return TierPin(connection, options, *pin, to);
                         });
  pins->add_option("SHARE", pin->share.name, "its name, in the namespace of -n or in 'default'")->required();
  pins->add_option("PIN", pin->pin, "none; soft: after all shares without a pin; hard: never")
      ->required()
      ->check(CLI::IsMember({"none", "soft", "hard"}));
  pins->add_option("--priority", pin->priority, "of shares with the same pin the lowest leaves first; default: 0");
  add("verify", "compare the bytes of files with their digests", TierVerify)
      ->add_option("SHARE", share_.name, "only this share's file; default: all of the namespace");
}

}  // namespace arraybridge::ctl
