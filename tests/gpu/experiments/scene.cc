// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/experiments/scene.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "proto/boundary/result.h"
#include "tests/gpu/experiments/record.h"

namespace arraybridge::experiments {

Scene::Scene(Options options) : options_(std::move(options)) {}

std::unique_ptr<Peer> Scene::StartBare(const std::string& name, std::vector<std::string> under,
                                       std::vector<std::string> environment) {
  const PeerOptions options{.experiment = options_.name,
                            .driver = options_.driver,
                            .under = std::move(under),
                            .environment = std::move(environment)};
  // Simulated work takes what the machine needs for it.
  const auto deadline = options_.small ? std::nullopt : std::optional(begun_ + options_.limit);
  // Living peers end with this process, because the other end of their socket closes.
  return std::make_unique<Peer>(name, options, deadline, [this](const std::string& what) {
    Print(what);
    ::_exit(0);
  });
}

std::unique_ptr<Peer> Scene::StartUnloaded(const std::string& name, std::vector<std::string> environment) {
  ++drivers_;
  return StartBare(name, {}, std::move(environment));
}

std::unique_ptr<Peer> Scene::Start(const std::string& name, bool context, std::vector<std::string> under,
                                   std::vector<std::string> environment) {
  auto peer = StartBare(name, std::move(under), std::move(environment));
  ++drivers_;
  Needs(name + " loads the driver", peer->Do("load"));
  if (context) Needs(name + " has a context", peer->Do("context"));
  return peer;
}

void Scene::Expect(const std::string& what, bool held) { checks_.emplace_back(what, held); }

bool Scene::Needs(const std::string& what, const Answer& answer) {
  if (!answer.ok()) checks_.emplace_back(what + " (" + answer.ToString() + ")", false);
  return answer.ok();
}

void Scene::Record(const std::string& what, const std::string& seen) { seen_.emplace_back(what, seen); }

std::chrono::milliseconds Scene::Takes(std::chrono::milliseconds time) {
  waits_ += time;
  return options_.small ? time / 10 : time;
}

void Scene::Wait(std::chrono::milliseconds time) { std::this_thread::sleep_for(Takes(time)); }

Answer Scene::Within(Peer& peer, const std::string& command, std::chrono::milliseconds time) {
  waits_ += time;
  return options_.small ? peer.Do(command) : peer.DoWithin(command, std::chrono::steady_clock::now() + time);
}

void Scene::Print(const std::string& late) const {
  const bool differs = std::any_of(checks_.begin(), checks_.end(), [](const auto& check) { return !check.second; });
  std::string outcome = differs ? "differs" : checks_.empty() ? "recorded" : "as expected";
  if (!impossible_.empty()) outcome = "not run: " + impossible_;
  if (!late.empty()) outcome = "timed out: " + late;
  std::string checks;
  for (const auto& [what, held] : checks_) {
    checks += Concat(checks.empty() ? "" : ", ", "[", Quoted(what), ", ", held ? "true" : "false", "]");
  }
  std::string seen;
  for (const auto& [what, value] : seen_) {
    seen += Concat(seen.empty() ? "" : ", ", "[", Quoted(what), ", ", Quoted(value), "]");
  }
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f", MicrosecondsSince(begun_) / 1e6);
  PrintLine(Concat("{\"experiment\": ", Quoted(options_.name), ", \"title\": ", Quoted(options_.title),
                   ", \"outcome\": ", Quoted(outcome), ", \"checks\": [", checks, "], \"seen\": [", seen,
                   "], \"seconds\": ", seconds, ", \"waits_s\": ", static_cast<double>(waits_.count()) / 1e3,
                   ", \"drivers\": ", drivers_, "}"));
}

}  // namespace arraybridge::experiments
