// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/services/service_commands.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "client/ctl/output/columns.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/table.h"
#include "client/ctl/services/figures.h"

namespace arraybridge::ctl {
namespace {

constexpr std::string_view kServicePrefix = "service/";
constexpr std::string_view kTicketsPart = "/tickets";
constexpr std::string_view kFiguresPart = "/figures/";

struct Server {
  v1::ChannelEndInfo end;
  std::optional<Figures> figures;  // none: it has answered nothing of late, or may not publish
};

struct Service {
  std::string name;
  v1::ChannelInfo tickets;  // its queue of requests: servers receive, callers send
  std::vector<Server> servers;
  std::vector<v1::ChannelEndInfo> callers;
};

// By service and session; a session may serve one name several times.
using FiguresBySession = std::multimap<std::pair<std::string, uint64_t>, Figures>;

v1::ListRequest ListOfServices(v1::ListRequest::Kind kind, const Options& options) {
  v1::ListRequest request;
  request.set_kind(kind);
  request.set_namespace_(options.ns);
  request.set_name_prefix(std::string(kServicePrefix));
  request.set_ends(kind == v1::ListRequest::CHANNELS);
  return request;
}

// The name between the prefix and `part`; nothing if `name` is of another form.
std::optional<std::string> ServiceIn(std::string_view name, std::string_view part) {
  const size_t at = name.rfind(part);
  if (!name.starts_with(kServicePrefix) || at == std::string_view::npos || at <= kServicePrefix.size())
    return std::nullopt;
  return std::string(name.substr(kServicePrefix.size(), at - kServicePrefix.size()));
}

Result<FiguresBySession> ReadAllFigures(Connection& connection, const Options& options) {
  AB_ASSIGN_OR_RETURN(const auto listed, connection.List(ListOfServices(v1::ListRequest::SHARES, options)));
  FiguresBySession all;
  for (const v1::ShareInfo& row : listed.shares()) {
    if (auto service = ServiceIn(row.share().name(), kFiguresPart)) {
      all.emplace(std::pair(*std::move(service), row.maker()), ReadFigures(row.share().metadata()));
    }
  }
  return all;
}

Service ServiceOf(std::string name, v1::ChannelInfo tickets, FiguresBySession* figures) {
  Service service{std::move(name), std::move(tickets), {}, {}};
  for (const v1::ChannelEndInfo& end : service.tickets.ends()) {
    if (end.closed_ms() > 0) continue;
    if (end.sends()) {
      service.callers.push_back(end);
      continue;
    }
    Server& server = service.servers.emplace_back(Server{end, std::nullopt});
    const auto found = figures->find({service.name, end.session()});
    if (end.session() == 0 || found == figures->end()) continue;
    server.figures = found->second;
    figures->erase(found);
  }
  return service;
}

Result<std::vector<Service>> Services(Connection& connection, const Options& options) {
  AB_ASSIGN_OR_RETURN(auto figures, ReadAllFigures(connection, options));
  AB_ASSIGN_OR_RETURN(auto listed, connection.List(ListOfServices(v1::ListRequest::CHANNELS, options)));
  std::vector<Service> services;
  for (v1::ChannelInfo& row : *listed.mutable_channels()) {
    if (!row.name().ends_with(kTicketsPart)) continue;
    if (auto name = ServiceIn(row.name(), kTicketsPart)) {
      services.push_back(ServiceOf(*std::move(name), std::move(row), &figures));
    }
  }
  return services;
}

// The sums of all servers, and the times of the slowest; nothing if none has figures.
std::optional<Figures> Together(const Service& service) {
  std::optional<Figures> all;
  for (const Server& server : service.servers) {
    if (!server.figures) continue;
    if (!all) all.emplace();
    all->requests += server.figures->requests;
    all->failed += server.figures->failed;
    all->rate_milli += server.figures->rate_milli;
    all->p50_us = std::max(all->p50_us, server.figures->p50_us);
    all->p99_us = std::max(all->p99_us, server.figures->p99_us);
  }
  return all;
}

double PerSecond(const Figures& figures) { return static_cast<double>(figures.rate_milli) / 1000; }

// "0.90 ms" for people, microseconds for programs.
std::string MicrosecondsText(uint64_t us, const Style& style) {
  if (!style.people()) return std::to_string(us);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f ms", static_cast<double>(us) / 1000);
  return text.data();
}

std::string WaitingText(const v1::ChannelInfo& tickets) { return Concat(tickets.queued(), " of ", tickets.capacity()); }

std::string EndText(const v1::ChannelEndInfo& end) {
  if (end.process_id() == 0 && end.session() == 0) return "another user's process";
  return Concat(end.client().empty() ? "a client" : end.client(), ", process ", end.process_id(), ", session ",
                end.session());
}

std::string WorkText(const Server& server, const Style& style) {
  if (!server.figures) return ", no answer in the last seconds";
  const Figures& figures = *server.figures;
  return Concat(", ", figures.requests, " requests, ", figures.failed, " failed, ", RateText(PerSecond(figures)),
                ", p50 ", MicrosecondsText(figures.p50_us, style), ", p99 ", MicrosecondsText(figures.p99_us, style));
}

void WriteFigures(const Figures& figures, JsonWriter* json) {
  const auto number = [json](std::string_view key, uint64_t value) {
    json->Key(key).Number(static_cast<int64_t>(value));
  };
  number("requests", figures.requests);
  number("failed", figures.failed);
  number("requests_per_1000_s", figures.rate_milli);
  number("p50_us", figures.p50_us);
  number("p99_us", figures.p99_us);
}

void WriteEnd(const v1::ChannelEndInfo& end, JsonWriter* json) {
  json->Key("client").Text(end.client());
  json->Key("process_id").Number(static_cast<int64_t>(end.process_id()));
  json->Key("session").Number(static_cast<int64_t>(end.session()));
}

// `ends`: also each server and each caller.
void WriteService(const Service& service, bool ends, JsonWriter* json) {
  const v1::ChannelInfo& tickets = service.tickets;
  json->Open('{');
  json->Key("namespace").Text(tickets.namespace_());
  json->Key("service").Text(service.name);
  json->Key("servers").Number(static_cast<int64_t>(service.servers.size()));
  json->Key("callers").Number(static_cast<int64_t>(service.callers.size()));
  json->Key("waiting").Number(static_cast<int64_t>(tickets.queued()));
  json->Key("queue").Number(static_cast<int64_t>(tickets.capacity()));
  json->Key("oldest_ms").Number(static_cast<int64_t>(tickets.oldest_ms()));
  if (const auto all = Together(service)) WriteFigures(*all, json);
  if (ends) {
    json->Key("server").Open('[');
    for (const Server& server : service.servers) {
      json->Next();
      json->Open('{');
      WriteEnd(server.end, json);
      if (server.figures) WriteFigures(*server.figures, json);
      json->Close('}');
    }
    json->Close(']');
    json->Key("caller").Open('[');
    for (const v1::ChannelEndInfo& caller : service.callers) {
      json->Next();
      json->Open('{');
      WriteEnd(caller, json);
      json->Close('}');
    }
    json->Close(']');
  }
  json->Close('}');
}

void PrintAsJson(const std::vector<Service>& services, const Options& options, std::ostream& out) {
  if (options.output == Output::kJsonl) {
    for (const Service& service : services) {
      std::string line;
      JsonWriter json(false, &line);
      WriteService(service, false, &json);
      out << line << '\n';
    }
    return;
  }
  std::string text;
  JsonWriter json(true, &text);
  json.Open('{');
  json.Key("services").Open('[');
  for (const Service& service : services) {
    json.Next();
    WriteService(service, false, &json);
  }
  json.Close(']');
  json.Close('}');
  out << text << '\n';
}

std::vector<std::string> ServiceRow(const Service& service, const Table& table, const Style& style) {
  const v1::ChannelInfo& tickets = service.tickets;
  std::vector<std::string> row = {tickets.namespace_(),
                                  service.name,
                                  std::to_string(service.servers.size()),
                                  std::to_string(service.callers.size()),
                                  std::to_string(tickets.queued()),
                                  std::to_string(tickets.capacity()),
                                  tickets.queued() > 0 ? table.Age(tickets.oldest_ms()) : ""};
  const auto all = Together(service);
  if (!all) return row.insert(row.end(), 4, ""), row;
  row.insert(row.end(), {std::to_string(all->requests), RateText(PerSecond(*all)), MicrosecondsText(all->p50_us, style),
                         MicrosecondsText(all->p99_us, style)});
  return row;
}

}  // namespace

Status ListServices(Connection& connection, const Options& options, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto services, Services(connection, options));
  if (IsJson(options)) return PrintAsJson(services, options, out), Ok();
  const Style style = StyleOf(options);
  Table table(
      {"NAMESPACE", "SERVICE", "SERVERS", "CALLERS", "WAITING", "QUEUE", "OLDEST", "REQUESTS", "RATE", "P50", "P99"},
      style);
  for (const Service& service : services) table.Add(ServiceRow(service, table, style));
  table.Print(out, options.header);
  return Ok();
}

Status ShowService(Connection& connection, const Options& options, const std::string& name, std::ostream& out) {
  Options here = options;
  if (here.ns.empty()) here.ns = "default";
  AB_ASSIGN_OR_RETURN(const auto services, Services(connection, here));
  const auto found = std::ranges::find(services, name, &Service::name);
  if (found == services.end())
    return NotFound("namespace '", here.ns, "' has no service '", name, "'").Because("SERVICE_NOT_FOUND");
  const Style style = StyleOf(options);
  if (style.json()) {
    std::string text;
    JsonWriter json(options.output == Output::kJson, &text);
    WriteService(*found, true, &json);
    out << text << '\n';
    return Ok();
  }
  Table table({"WHAT", "VALUE"}, style);
  table.Add({"service", found->name});
  table.Add({"namespace", found->tickets.namespace_()});
  table.Add({"waiting", WaitingText(found->tickets)});
  if (found->tickets.queued() > 0) table.Add({"oldest", table.Age(found->tickets.oldest_ms())});
  for (const Server& server : found->servers) table.Add({"server", EndText(server.end) + WorkText(server, style)});
  for (const v1::ChannelEndInfo& caller : found->callers) table.Add({"caller", EndText(caller)});
  table.Print(out, options.header);
  return Ok();
}

std::string NameToShow(const std::string& channel, std::string_view lister) {
  return lister == "service ls" ? ServiceIn(channel, kTicketsPart).value_or(channel) : channel;
}

}  // namespace arraybridge::ctl
