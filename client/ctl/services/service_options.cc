// SPDX-License-Identifier: Apache-2.0
// The command line of the commands on services.
#include <CLI/CLI.hpp>

#include "client/ctl/command_line.h"
#include "client/ctl/services/service_commands.h"

namespace arraybridge::ctl {

void CommandLine::DeclareServices() {
  auto* const service = app_.add_subcommand("service", "list and show services");
  service->require_subcommand(1);
  Add(*service, "ls", "list services: servers, callers, waiting requests, rate and latency", ListServices);
  auto* const show = Add(*service, "show", "print a service, its servers and its callers",
                         [this](Connection& connection, const Options& options, std::ostream& out) {
                           return ShowService(connection, options, share_.name, out);
                         });
  show->add_option("SERVICE", share_.name, "its name, in the namespace of -n or in 'default'")->required();
}

}  // namespace arraybridge::ctl
