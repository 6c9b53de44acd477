// SPDX-License-Identifier: Apache-2.0
// The command line: the options and commands of arraybridgectl, and the function that a command calls.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/ctl/admin/admin.h"
#include "client/ctl/commands.h"
#include "client/ctl/completion.h"
#include "client/ctl/output/listing.h"
#include "client/ctl/python/python_commands.h"
#include "client/ctl/shares/transfer.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace arraybridge::ctl {

// The chosen command: the first of the first three members that is set.
struct Chosen {
  using Command = std::function<Status(Connection&, const Options&, std::ostream&)>;
  using Local = std::function<Status(const Options&, std::ostream&)>;
  Command command;               // through the public socket
  AdminCommand admin = nullptr;  // through the administration socket
  Local local;                   // connects by itself, or needs no broker
  std::string lister;            // the command that lists what this one may name; empty: it names nothing
  std::string named;             // the share or the channel that it names; empty: neither
};

class CommandLine {
 public:
  CommandLine();
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Returns null if the arguments are valid. Otherwise returns the exit status, after it has printed help or the error.
  const int* Parse(int argc, char** argv);

  // REQUIRES: Parse returned null.
  const Options& options() const { return options_; }
  const AdminOptions& admin() const { return admin_; }
  const Chosen& chosen() const { return chosen_; }

 private:
  void DeclareOptions();
  void DeclareLooking();
  void DeclareLs();
  void DeclareTop();
  void DeclareShares();
  void DeclareChannels();
  void DeclareTiers();
  void DeclareFiles();
  void DeclareServices();
  void DeclareRecording();
  void DeclareWatch();
  void DeclareAdministration();
  void DeclareConfig();
  void DeclareTokens();
  void DeclareShell();
  // INVALID_ARGUMENT: options contradict each other.
  Status Finish();

  CLI::App* Add(CLI::App& to, const char* name, const char* help, Chosen::Command command);
  CLI::App* AddAdmin(CLI::App& to, const char* name, const char* help, AdminCommand command);
  CLI::App* AddLocal(CLI::App& to, const char* name, const char* help, Chosen::Local local);
  std::vector<Choices> AllChoices() const;

  // To parse CLI11's headers takes 8 s of compiling, so few units include them.
  const std::unique_ptr<CLI::App> owned_app_;
  CLI::App& app_;
  Options options_;
  AdminOptions admin_;
  Chosen chosen_;
  int exit_ = 0;

  std::string output_ = "table";
  std::string units_;
  std::string token_file_;
  uint64_t timeout_ms_ = 5000;
  bool no_header_ = false;

  Selection listed_;
  bool all_ = false;
  DoctorWishes doctor_;

  Rounds rounds_;
  uint64_t interval_ms_ = 2000;
  bool once_ = false;
  bool batch_ = false;

  ShareArgument share_;
  ChannelArgument channel_;
  bool anybodys_ = false;
  CLI::App* info_ = nullptr;
  bool lost_ = false;
  CLI::App* withdraw_ = nullptr;
  CLI::Option* withdraw_uid_ = nullptr;
  PutWishes put_;
  uint64_t lifetime_ms_ = 0;
  LoadWishes load_;
  RecordWishes record_;
  ReplayWishes replay_;
  DumpWishes dump_;
  WatchWishes watching_;
  uint64_t since_ms_ = 0;
  std::string config_file_;
  std::string shell_;
};

}  // namespace arraybridge::ctl
