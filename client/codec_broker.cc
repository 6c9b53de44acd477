// Answers that speak of the broker itself: what it is, what it counts, why it refuses.
#include "client/codec_wire.h"

namespace arraybridge::codec {
namespace {

void ParseLimits(Reader reader, Limits& limits) {
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Varint(1):
        limits.share.frame_bytes_max = reader.get_uint64();
        break;
      case Varint(2):
        limits.share.name_bytes_max = reader.get_uint64();
        break;
      case Varint(3):
        limits.share.arrays_per_share_max = reader.get_uint64();
        break;
      case Varint(4):
        limits.share.rank_max = reader.get_uint64();
        break;
      case Varint(5):
        limits.share.spec_bytes_max = reader.get_uint64();
        break;
      case Varint(6):
        limits.share.structure_bytes_max = reader.get_uint64();
        break;
      case Varint(7):
        limits.share.metadata_bytes_max = reader.get_uint64();
        break;
      case Varint(9):
        limits.names_per_request_max = reader.get_uint64();
        break;
      case Varint(10):
        limits.request_timeout_max_ms = reader.get_uint64();
        break;
      case Varint(12):
        limits.arena_idle_ms = reader.get_uint64();
        break;
      case Varint(14):
        limits.own_arena_bytes_min = reader.get_uint64();
        break;
      case Varint(15):
        limits.note_bytes_max = reader.get_uint64();
        break;
      default:
        reader.skip();
    }
  }
}

Status ParseServer(Reader reader, Server& server) {
  ServerInfo& info = server.info;
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case Bytes(1):
        info.version = Text(reader);
        break;
      case Bytes(2):
        info.broker_id = Text(reader);
        break;
      case Varint(3):
        info.protocol_min = reader.get_uint32();
        break;
      case Varint(4):
        info.protocol_max = reader.get_uint32();
        break;
      case Varint(6):
        info.uptime_ms = reader.get_uint64();
        break;
      case Bytes(7):
        ParseLimits(reader.get_message(), server.limits);
        break;
      case Bytes(9): {
        const std::string can = Text(reader);
        server.events = server.events || can == "events";
        break;
      }
      case Varint(14):
        server.clock_ms = reader.get_uint64();
        break;
      default:
        reader.skip();
    }
  }
  return Ok();
}

}  // namespace

Result<Server> DecodeServer(std::string_view message) { return Decode<Server>(message, ParseServer); }

Result<Opened> DecodeOpened(std::string_view message) {
  return Decode<Opened>(message, [](Reader reader, Opened& opened) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Varint(1):
          opened.session = reader.get_uint64();
          break;
        case Varint(3):
          opened.protocol = reader.get_uint32();
          break;
        case Bytes(4):
          AB_RETURN_IF_ERROR(ParseServer(reader.get_message(), opened.server));
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Result<OpenedChannel> DecodeOpenedChannel(std::string_view message) {
  return Decode<OpenedChannel>(message, [](Reader reader, OpenedChannel& opened) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Varint(1):
          opened.channel = reader.get_uint64();
          break;
        case Varint(2):
          opened.capacity = reader.get_uint64();
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Result<Stats> DecodeStats(std::string_view message) {
  return Decode<Stats>(message, [](Reader reader, Stats& stats) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Varint(1):
          stats.sessions = reader.get_uint64();
          break;
        case Varint(2):
          stats.leases = reader.get_uint64();
          break;
        case Varint(3):
          stats.shares = reader.get_uint64();
          break;
        case Varint(4):
          stats.withdrawn_shares = reader.get_uint64();
          break;
        case Varint(5):
          stats.arenas = reader.get_uint64();
          break;
        case Varint(6):
          stats.charged_bytes = reader.get_uint64();
          break;
        case Varint(7):
          stats.tickets = reader.get_uint64();
          break;
        case Varint(8):
          stats.waiting = reader.get_uint64();
          break;
        case Varint(9):
          stats.dying_arenas = reader.get_uint64();
          break;
        case Bytes(10): {
          Reader device = reader.get_message();
          while (device.next()) {
            switch (device.tag_and_type()) {
              case Varint(3):
                stats.capacity_bytes += device.get_uint64();
                break;
              case Varint(4):
                stats.allocated_bytes += device.get_uint64();
                break;
              case Varint(5):
                stats.cached_bytes += device.get_uint64();
                break;
              case Varint(8):
                stats.quarantined_bytes += device.get_uint64();
                break;
              default:
                device.skip();
            }
          }
          break;
        }
        case Varint(11):
          stats.sessions_total = reader.get_uint64();
          break;
        case Varint(12):
          stats.publishes_total = reader.get_uint64();
          break;
        case Varint(13):
          stats.acquires_total = reader.get_uint64();
          break;
        case Varint(14):
          stats.refusals_total = reader.get_uint64();
          break;
        case Varint(15):
          stats.sessions_cut_total = reader.get_uint64();
          break;
        case Varint(16):
          stats.holds = reader.get_uint64();
          break;
        case Varint(17):
          stats.pinned_bytes = reader.get_uint64();
          break;
        case Varint(18):
          stats.pending_fences = reader.get_uint64();
          break;
        case Varint(19):
          stats.lost_fences_total = reader.get_uint64();
          break;
        case Varint(20):
          stats.channels = reader.get_uint64();
          break;
        case Varint(21):
          stats.queued_shares = reader.get_uint64();
          break;
        case Varint(22):
          stats.watchers = reader.get_uint64();
          break;
        case Varint(23):
          stats.events_dropped_total = reader.get_uint64();
          break;
        default:
          reader.skip();
      }
    }
    return Ok();
  });
}

Status DecodeError(uint32_t code, std::string_view message) {
  struct Fields {
    std::string text;
    std::string reason;
    Status::Metadata metadata;
  };
  auto fields = Decode<Fields>(message, [](Reader reader, Fields& found) {
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case Bytes(1):
          found.text = Text(reader);
          break;
        case Bytes(2):
          found.reason = Text(reader);
          break;
        case Bytes(3): {
          auto& entry = found.metadata.emplace_back();
          Reader pair = reader.get_message();
          while (pair.next()) {
            switch (pair.tag_and_type()) {
              case Bytes(1):
                entry.first = Text(pair);
                break;
              case Bytes(2):
                entry.second = Text(pair);
                break;
              default:
                pair.skip();
            }
          }
          break;
        }
        default:
          reader.skip();
      }
    }
    return Ok();
  });
  const bool known = code != 0 && code <= static_cast<uint32_t>(Code::kUnauthenticated);
  const Code number = known ? static_cast<Code>(code) : Code::kUnknown;
  if (!fields.ok()) return Status(number, "the broker refused, and its reason does not parse");
  Status status(number, std::move(fields->text), std::move(fields->reason));
  for (auto& [key, value] : fields->metadata) status = std::move(status).With(std::move(key), std::move(value));
  return status;
}

}  // namespace arraybridge::codec
