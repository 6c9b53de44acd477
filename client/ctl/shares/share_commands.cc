// SPDX-License-Identifier: Apache-2.0
// The commands about one share. Each prints its part of the answer to Inspect.
#include <ctime>
#include <map>
#include <ostream>
#include <utility>

#include "client/ctl/commands.h"
#include "client/ctl/output/print.h"
#include "client/ctl/output/table.h"
#include "client/ctl/residency/residency.h"

namespace arraybridge::ctl {
namespace {

using std::to_string;

v1::ShareRef RefOf(const ShareArgument& share) {
  v1::ShareRef ref;
  ref.set_name(share.name);
  ref.set_generation(share.generation);
  return ref;
}

Result<v1::InspectResponse> Inspect(Connection& connection, const Options& options, const ShareArgument& share) {
  v1::InspectRequest request;
  request.set_namespace_(options.ns);
  *request.mutable_share() = RefOf(share);
  auto found = connection.Inspect(request);
  if (found.ok() || found.status().code() != Code::kNotFound) return found;
  const auto channel = FindChannel(connection, options, share.name);
  if (!channel.ok()) return found;
  return NotFound(found.status().message(), "; a channel has that name: arraybridgectl channel show prints its ends")
      .Because(found.status().reason());
}

// Prints the whole answer as JSON, or the table that `table_of` makes of it.
template <class TableOf>
Status Tell(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out,
            TableOf table_of) {
  AB_ASSIGN_OR_RETURN(const auto found, Inspect(connection, options, share));
  if (IsJson(options)) return PrintJson(found, options, out);
  table_of(found, StyleOf(options)).Print(out, options.header);
  return Ok();
}

Table Facts(const v1::InspectResponse& found, const Style& style) {
  const v1::ShareInfo& info = found.share();
  const v1::Share& share = info.share();
  Table table({"WHAT", "VALUE"}, style);
  table.Add({"name", share.name()});
  table.Add({"namespace", share.namespace_()});
  table.Add({"id", to_string(share.id())});
  table.Add({"generation", to_string(share.generation())});
  table.Add({"size", table.Size(share.handle().size())});
  int number = 0;
  for (const v1::ArraySpec& spec : share.specs().arrays()) {
    table.Add({Concat("array ", number++), Concat(ArrayName(spec), " at byte ", spec.offset())});
  }
  table.Add({"device", DeviceName(share.handle().device())});
  table.Add({"kind", KindName(share.handle().kind())});
  table.Add({"arena", Concat(share.handle().arena(), ", from byte ", share.handle().offset())});
  table.Add({"immutable", share.immutability() == v1::IMMUTABILITY_ENFORCED ? "enforced" : "by contract"});
  table.Add({"fence", share.fence().kind() == v1::Fence::DONE ? "done" : "event"});
  table.Add({"metadata", Concat(share.metadata().size(), " bytes")});
  table.Add({"age", table.Age(info.age_ms())});
  table.Add({"maker", Concat(found.maker().client(), ", process ", found.maker().process_id(), ", session ",
                             found.maker().session(), info.maker() == 0 ? ", gone" : "")});
  table.Add({"leases", to_string(info.leases())});
  return table;
}

// Adds the sessions with leases, as far as this user may see them: possibly fewer than the share has.
void AddHolders(Table& table, uint64_t share, const v1::ListResponse& leases) {
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> counts;  // of leases, by session and process
  for (const v1::LeaseInfo& lease : leases.leases()) {
    if (lease.share() == share) ++counts[{lease.session(), lease.process_id()}];
  }
  for (const auto& [holder, count] : counts) {
    table.Add({"held by", Concat("session ", holder.first, ", process ", holder.second, ", ", count,
                                 count == 1 ? " lease" : " leases")});
  }
}

void AddVisit(Table& table, const std::string& did, const v1::Visit& visit, const Style& style) {
  table.Add({did, TimeText(visit.last_ns(), style), visit.client(), to_string(visit.process_id()),
             to_string(visit.session()), to_string(visit.uid()), visit.count() == 0 ? "" : to_string(visit.count()),
             visit.note()});
}

Table Visits(const v1::InspectResponse& found, const Style& style) {
  Table table({"DID", "LAST", "CLIENT", "PID", "SESSION", "UID", "TIMES", "ROUTE"}, style);
  AddVisit(table, "made", found.maker(), style);
  for (const v1::Visit& visit : found.readers()) AddVisit(table, "read", visit, style);
  if (found.readers_forgotten() > 0) {
    table.Add({"read", "", Concat(found.readers_forgotten(), " older readers are not recorded"), "", "", "", "", ""});
  }
  return table;
}

Table Offers(const v1::InspectResponse& found, const Style& style) {
  const v1::Handle& handle = found.share().share().handle();
  const std::string own = KindName(handle.kind());
  const std::string device = DeviceName(handle.device());
  Table table({"TO", "CLIENT", "PID", "KIND", "OFFERED", "WHY"}, style);
  table.Add({device, "", "", own, "yes", WhyOffered(handle)});
  for (const int kind : found.kinds()) {
    if (kind != handle.kind()) table.Add({device, "", "", KindName(kind), "no", "used by other shares of this device"});
  }
  for (const v1::RefusedKind& refused : found.refused()) {
    table.Add({device, "", "", KindName(refused.kind()), "no", refused.why()});
  }
  for (const v1::Offer& offer : found.offers()) {
    const bool offered = offer.why_not().empty();
    std::string why =
        offer.waits() ? "after its bytes are complete: the session and the maker cannot exchange events" : "";
    if (offer.gpus_unsaid())
      why += Concat(why.empty() ? "" : "; ", "if it sees that GPU: it has not reported its GPUs");
    const char* const answer = !offered ? "no" : offer.gpus_unsaid() ? "maybe" : "yes";
    table.Add({Concat("session ", offer.session()), offer.client(), to_string(offer.process_id()), own, answer,
               offered ? why : offer.why_not()});
  }
  if (found.offers_left_out() > 0) {
    table.Add({Concat(found.offers_left_out(), " more sessions"), "", "", "", "", "left out: the answer is full"});
  }
  return table;
}

}  // namespace

Status Show(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out) {
  AB_ASSIGN_OR_RETURN(const auto found, Inspect(connection, options, share));
  if (IsJson(options)) return PrintJson(found, options, out);
  v1::ListRequest request;
  request.set_kind(v1::ListRequest::LEASES);
  request.set_namespace_(found.share().share().namespace_());
  request.set_name_prefix(found.share().share().name());
  AB_ASSIGN_OR_RETURN(const auto leases, connection.List(request));
  Table table = Facts(found, StyleOf(options));
  AddResidency(table, connection, found.share().share());
  AddHolders(table, found.share().share().id(), leases);
  table.Print(out, options.header);
  return Ok();
}

Status Trace(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out) {
  return Tell(connection, options, share, out, Visits);
}

Status Explain(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out) {
  return Tell(connection, options, share, out, Offers);
}

Status Withdraw(Connection& connection, const Options& options, const ShareArgument& share, std::ostream& out) {
  v1::WithdrawRequest request;
  request.set_namespace_(options.ns);
  *request.add_shares() = RefOf(share);
  AB_ASSIGN_OR_RETURN(const auto withdrawn, connection.Withdraw(request));
  if (IsJson(options)) return PrintJson(withdrawn, options, out);
  out << "withdrawn\n";
  return Ok();
}

}  // namespace arraybridge::ctl
