#include "base/rpc/envelope.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/crc32c.h"
#include "base/rpc/wire.h"

namespace replicant::rpc {
namespace {

constexpr size_t kChecksumOffset = 60;

uint32_t PayloadCrc(std::span<const Frame> payload) {
  uint32_t crc = 0;
  for (const Frame& frame : payload) crc = Crc32c(frame.bytes(), crc);
  return crc;
}

void CheckVersion(uint16_t version) {
  if (version == kEnvelopeVersion) return;
  throw VersionMismatch(fmt::format(
      "envelope: the sender speaks version {}, this side version {}; the {} is "
      "older; hint: update it",
      version, kEnvelopeVersion,
      version < kEnvelopeVersion ? "sender" : "receiver"));
}

// The size of the payload as stated by the header.
struct PayloadClaim {
  uint32_t parts = 0;
  uint64_t size_bytes = 0;
  uint32_t crc = 0;
};

Header DecodeHeader(std::span<const std::byte> bytes, PayloadClaim* claim) {
  WireReader reader("envelope", bytes);
  const auto magic = reader.Read<uint32_t>("magic");
  if (magic != kMagic) {
    throw MalformedMessage(fmt::format(
        "envelope: magic is {:#010x}, expected {:#010x}", magic, kMagic));
  }
  // check it before the size: another version may have another header
  CheckVersion(reader.Read<uint16_t>("version"));
  if (bytes.size() != kHeaderBytes) {
    throw MalformedMessage(
        fmt::format("envelope: header has {} bytes, expected {}", bytes.size(),
                    kHeaderBytes));
  }
  Header header;
  header.kind = reader.Read<uint16_t>("kind");
  header.flags = reader.Read<uint32_t>("flags");
  claim->parts = reader.Read<uint32_t>("parts");
  header.session_id = reader.Read<uint64_t>("session");
  header.schema_hash = reader.Read<uint64_t>("schema hash");
  header.request_id = reader.Read<uint64_t>("request id");
  header.sender_id = reader.Read<uint64_t>("sender");
  claim->size_bytes = reader.Read<uint64_t>("payload bytes");
  claim->crc = reader.Read<uint32_t>("payload checksum");

  const auto crc = reader.Read<uint32_t>("header checksum");
  const uint32_t actual = Crc32c(bytes.first(kChecksumOffset));
  if (crc != actual) {
    throw MalformedMessage(
        fmt::format("envelope: header checksum is {:#010x}, its bytes give "
                    "{:#010x}",
                    crc, actual));
  }
  if ((header.flags & ~kAllFlags) != 0 ||
      (header.has(kError) && !header.has(kReply))) {
    throw MalformedMessage(
        fmt::format("envelope: flags {:#x} are not allowed", header.flags));
  }
  return header;
}

void CheckClaim(const Header& header, const PayloadClaim& claim,
                std::span<const Frame> payload, const EnvelopeLimits& limits) {
  const uint64_t size_bytes = SizeBytes(payload);
  if (payload.size() > limits.max_parts ||
      size_bytes > limits.max_payload_bytes) {
    throw MalformedMessage(fmt::format(
        "envelope: payload of {} parts, {} bytes; at most {} parts, {} bytes "
        "are allowed",
        payload.size(), size_bytes, limits.max_parts,
        limits.max_payload_bytes));
  }
  if (payload.size() != claim.parts || size_bytes != claim.size_bytes) {
    throw MalformedMessage(fmt::format(
        "envelope: payload of {} parts, {} bytes; its header says {} parts, {} "
        "bytes",
        payload.size(), size_bytes, claim.parts, claim.size_bytes));
  }
  const uint32_t crc = header.has(kPayloadCrc) ? PayloadCrc(payload) : 0;
  if (crc != claim.crc) {
    throw MalformedMessage(
        fmt::format("envelope: payload checksum is {:#010x}, its bytes give "
                    "{:#010x}",
                    claim.crc, crc));
  }
}

}  // namespace

void CheckPayload(std::string_view what, std::span<const Frame> payload,
                  const EnvelopeLimits& limits, int64_t max_part_bytes) {
  size_t longest = 0;
  for (const Frame& frame : payload) longest = std::max(longest, frame.size());
  if (payload.size() <= limits.max_parts &&
      longest <= static_cast<size_t>(max_part_bytes) &&
      SizeBytes(payload) <= limits.max_payload_bytes) {
    return;
  }
  throw InvalidArgument(fmt::format(
      "{} of {} parts, the longest of {} bytes, {} bytes in all; allowed are "
      "{} parts of {} bytes, {} bytes in all",
      what, payload.size(), longest, SizeBytes(payload), limits.max_parts,
      max_part_bytes, limits.max_payload_bytes));
}

Message Encode(const Header& header, Message payload) {
  if ((header.flags & ~kAllFlags) != 0 ||
      payload.size() > std::numeric_limits<uint32_t>::max()) {
    throw InvalidArgument(fmt::format("envelope: flags {:#x}, {} parts",
                                      header.flags, payload.size()));
  }
  WireWriter writer(kHeaderBytes);
  writer.Write(kMagic);
  writer.Write(kEnvelopeVersion);
  writer.Write(header.kind);
  writer.Write(header.flags);
  writer.Write(static_cast<uint32_t>(payload.size()));
  writer.Write(header.session_id);
  writer.Write(header.schema_hash);
  writer.Write(header.request_id);
  writer.Write(header.sender_id);
  writer.Write(uint64_t{SizeBytes(payload)});
  writer.Write(header.has(kPayloadCrc) ? PayloadCrc(payload) : uint32_t{0});
  writer.Write(Crc32c(writer.bytes()));

  Message message;
  message.reserve(payload.size() + 1);
  message.push_back(Frame::Copy(writer.bytes()));
  for (Frame& frame : payload) message.push_back(std::move(frame));
  return message;
}

Envelope Decode(std::span<Frame> frames, const EnvelopeLimits& limits) {
  if (frames.empty())
    throw MalformedMessage("envelope: a message without parts");
  PayloadClaim claim;
  Envelope envelope;
  envelope.header = DecodeHeader(frames[0].bytes(), &claim);
  const std::span<Frame> payload = frames.subspan(1);
  CheckClaim(envelope.header, claim, payload, limits);

  envelope.payload.reserve(payload.size());
  for (Frame& frame : payload) envelope.payload.push_back(std::move(frame));
  return envelope;
}

std::string ToString(ErrorCode code) {
  constexpr std::array kNames = {
      "kNone",           "kMalformed",   "kVersionMismatch", "kSchemaMismatch",
      "kUnknownSession", "kUnknownKind", "kInvalidArgument", "kFailed",
      "kBusy",           "kDeadline",    "kShuttingDown"};
  const auto number = static_cast<size_t>(code);
  return number < kNames.size() ? kNames[number]
                                : fmt::format("error {}", number);
}

Protocol Protocol::FromTable(std::string name, uint32_t version,
                             std::string_view table) {
  uint64_t hash = 14695981039346656037u;
  const auto absorb = [&hash](std::string_view text) {
    for (const char c : text) {
      hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
    }
  };
  absorb(name);
  absorb(std::string_view("\0", 1));
  absorb(table);
  return {std::move(name), version, hash, table};
}

std::string Protocol::ToString() const {
  return fmt::format("{} version {} (schema {:#018x})", name, version,
                     schema_hash);
}

bool HelloBody::IsPrintable(std::string_view name) {
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return c >= ' ' && c <= '~'; });
}

uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) {
    const ssize_t count = ::getrandom(&id, sizeof(id), 0);
    if (count == sizeof(id)) continue;
    if (errno != EINTR) throw IoError::FromErrno("getrandom", "id", errno);
    id = 0;
  }
  return id;
}

}  // namespace replicant::rpc
