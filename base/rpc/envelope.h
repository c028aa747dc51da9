#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/rpc/frame.h"

namespace replicant::rpc {

// The envelope around every message of Replicant: a header of 64 bytes in a
// separate part, then the payload parts. All numbers are little-endian.
//
//   offset  type  field
//    0      u32   magic "RPL1" (0x314C5052)
//    4      u16   version of this layout
//    6      u16   kind of message
//    8      u32   flags, see Flag
//   12      u32   payload parts
//   16      u64   session: random number of the service's run; 0 in a hello
//   24      u64   schema hash: which message table both sides speak
//   32      u64   request id; in a publication its sequence number
//   40      u64   sender: random number of the sending client's run
//   48      u64   payload bytes, all parts together
//   56      u32   CRC-32C of the payload, its parts one after another; 0
//                 without kPayloadCrc
//   60      u32   CRC-32C of bytes 0..59
//
// The rules of a conversation are in docs/rpc.md.
inline constexpr uint32_t kMagic = 0x314C5052;
inline constexpr uint16_t kEnvelopeVersion = 1;
inline constexpr size_t kHeaderBytes = 64;

enum Flag : uint32_t {
  kReply = 1,       // answers the request of the same id
  kError = 2,       // the payload is an ErrorBody; only with kReply
  kOneWay = 4,      // no reply is expected
  kPayloadCrc = 8,  // the payload has a checksum
};
inline constexpr uint32_t kAllFlags = 15;

// Kinds of messages from here on belong to base/rpc; a protocol's own kinds
// lie in [1, kFirstReservedKind).
inline constexpr uint16_t kFirstReservedKind = 0xFF00;
inline constexpr uint16_t kHelloKind = 0xFF01;
inline constexpr uint16_t kHeartbeatKind = 0xFF02;
inline constexpr uint16_t kPublicationKind = 0xFF03;

struct Header {
  uint16_t kind = 0;
  uint32_t flags = 0;  // of Flag
  uint64_t session_id = 0;
  uint64_t schema_hash = 0;
  uint64_t request_id = 0;
  uint64_t sender_id = 0;

  bool has(Flag flag) const { return (flags & flag) != 0; }
  bool operator==(const Header&) const = default;
};

struct Envelope {
  Header header;
  Message payload;
};

// The limits of Decode().
struct EnvelopeLimits {
  uint32_t max_parts = 1024;
  uint64_t max_payload_bytes = uint64_t{1} << 32;
};

// The other side speaks another envelope version.
class VersionMismatch : public CommError {
 public:
  using CommError::CommError;
};

// Puts the header before the payload; nothing of the payload is copied.
// Throws InvalidArgument for unknown flags or 2^32 parts.
Message Encode(const Header& header, Message payload);

// Throws InvalidArgument, naming `what` ("message"), for a payload over the
// limits or with a part of more than `max_part_bytes`: its receiver would drop
// it, or the connection.
void CheckPayload(std::string_view what, std::span<const Frame> payload,
                  const EnvelopeLimits& limits, int64_t max_part_bytes);

// Takes an envelope apart, moving the payload out of `frames`.
//
// Throws MalformedMessage, with `frames` unchanged, if there is no header, or
// for a wrong size, magic, checksum or flag, or if the parts and bytes that
// came differ from the header or are over a limit. Throws VersionMismatch if
// the magic is right but the version is not; the message names the older side.
// The caller checks kinds, sessions and hashes.
Envelope Decode(std::span<Frame> frames, const EnvelopeLimits& limits = {});

// The reason of a refused or failed request; the numbers are part of the
// protocol.
enum class ErrorCode : uint16_t {
  kNone = 0,
  kMalformed = 1,        // the message breaks the format
  kVersionMismatch = 2,  // another envelope version
  kSchemaMismatch = 3,   // another message table
  kUnknownSession = 4,   // say hello (again), then repeat the request
  kUnknownKind = 5,      // no handler for this kind of message
  kInvalidArgument = 6,  // the handler refused the request's contents
  kFailed = 7,           // the handler failed
  kBusy = 8,             // too many peers or requests; try later
  kDeadline = 9,         // the answer was not ready in time
  kShuttingDown = 10,    // the service is about to end
};

// "kBusy"; "error 77" for a number that is not in the list.
std::string ToString(ErrorCode code);

// Payload of a reply with kError: one part of u16 code, string text.
struct ErrorBody {
  static constexpr uint32_t kMaxTextBytes = 4096;

  static constexpr std::string_view kName = "error reply";

  ErrorCode code = ErrorCode::kNone;
  std::string text;

  template <class V>
  void Fields(V& v) {
    auto number = static_cast<uint16_t>(code);
    v.Number("code", &number);
    const auto read = static_cast<ErrorCode>(number);
    if (code != read) code = read;
    v.CutString("text", &text, kMaxTextBytes);
  }
};

// The message table that two sides must share.
struct Protocol {
  std::string name;      // "replay"
  uint32_t version = 1;  // for people: which of two tables is newer
  uint64_t schema_hash = 0;
  std::string_view table = {};  // empty for a peer's

  // The hash is FNV-1a (64 bits, offset 14695981039346656037, prime
  // 1099511628211) of name, a zero byte and `table`: a text that lists every
  // message with its fields and changes whenever one of them does. It lives for
  // the whole process.
  static Protocol FromTable(std::string name, uint32_t version,
                            std::string_view table);
  // "replay version 1 (schema 0x0123456789abcdef)".
  std::string ToString() const;
};

// Payload of a hello: one part of string protocol name, u32 its version,
// string name of the sender; both names are printable ASCII. The reply's holds
// the service's protocol and an empty sender.
struct HelloBody {
  static constexpr uint32_t kMaxNameBytes = 128;
  static constexpr std::string_view kName = "hello";

  std::string protocol_name;
  uint32_t protocol_version = 0;
  std::string sender_name;

  template <class V>
  void Fields(V& v) {
    // names go into logs
    const auto name_field = [&v](std::string_view field, std::string* name) {
      v.String(field, name, kMaxNameBytes);
      v.Check(IsPrintable(*name),
              "{} has characters other than printable ASCII", field);
    };
    name_field("protocol name", &protocol_name);
    v.Number("protocol version", &protocol_version);
    name_field("sender name", &sender_name);
  }
  static bool IsPrintable(std::string_view name);
};

// A random number other than 0 from the operating system. Session and sender
// ids must differ between runs of one seed, so no seeded stream makes them.
uint64_t RandomId();

}  // namespace replicant::rpc
