// Hostile messages for a running replay service. After each input it must still
// answer a good request, and its memory must stay within its limit.
//
// The input is a list of messages. Each begins with a byte: the low bits are
// the kind of a message in a good envelope, or, from kRaw on, of parts that are
// sent as they are. Then come the parts, each after two bytes of length.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/log.h"
#include "base/rpc/fields.h"
#include "base/rpc/server.h"
#include "base/rpc/socket.h"
#include "base/thread.h"
#include "replay/service/service.h"

namespace replicant::replay {
namespace {

using rpc::Frame;
using rpc::Header;
using rpc::Message;

constexpr uint8_t kRaw = 0x60;

ShardConfig Config() {
  ShardConfig config;
  config.shape = {.observation_bytes = 2, .action_bytes = 1, .frame_bytes = 16};
  config.max_bytes = 1 << 20;
  config.tables.resize(3);
  config.tables[0] = {.name = "t",
                      .max_size = 100,
                      .n_step = {.n_step = 2, .stack = 2},
                      .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                       .min_size_to_sample = 1}};
  config.tables[1] = {.name = "u",
                      .max_size = 20,
                      .sampler = SelectorKind::kFifo,
                      .max_times_sampled = 1,
                      .rate_limiter = {.mode = RateLimiterMode::kQueue}};
  config.tables[2] = {.name = "w",
                      .max_size = 50,
                      .n_step = {.stack = 2, .window = 3, .period = 2},
                      .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                       .min_size_to_sample = 1}};
  return config;
}

// A service in this process, and the socket of its enemy.
class Target {
 public:
  Target()
      : shard_(Config(), &Clock::Real()),
        service_(&shard_, {.credits = 8}, &Clock::Real()),
        server_(context_, ReplayProtocol(), ServerOptions()),
        socket_(context_, rpc::SocketType::kDealer) {
    service_.AttachTo(server_);
    const std::string endpoint = server_.Bind("inproc://replay");
    loop_.emplace("replay", [this](const auto&) { server_.Run(); });
    socket_.Connect(endpoint);
    session_ = Ask(rpc::kHelloKind,
                   rpc::EncodeMessage(rpc::HelloBody{"replay", 3, "fuzz"}), 0)
                   .session_id;
  }
  ~Target() {
    server_.Stop();
    loop_->Join();
  }

  void Send(uint8_t what, Message parts) {
    if (what < kRaw) {
      Header header = HeaderOf(what % 8, /*request_id=*/++last_request_);
      if ((what & 0x10) != 0) header.flags |= rpc::kOneWay;
      parts = rpc::Encode(header, std::move(parts));
    }
    if (parts.empty()) return;
    REPLICANT_CHECK(
        socket_.Send(parts, std::chrono::seconds(10)) == rpc::SendResult::kOk,
        "the service does not read");
  }

  // The service answers, and holds no more than it may.
  void CheckAlive() {
    Ask(kStatusKind, {}, ++last_request_);
    const ShardStatus status = shard_.Status();
    REPLICANT_CHECK_LE(status.size_bytes, status.max_bytes);
    for (const TableStatus& table : status.tables) {
      REPLICANT_CHECK_LE(table.size, table.max_size);
    }
  }

 private:
  static rpc::ServerOptions ServerOptions() {
    rpc::ServerOptions options;
    options.tick_interval = std::chrono::milliseconds(5);
    options.max_unanswered = 64;
    return options;
  }
  Header HeaderOf(uint16_t kind, uint64_t request_id) const {
    Header header;
    header.kind = kind;
    header.session_id = session_;
    header.schema_hash = ReplayProtocol().schema_hash;
    header.request_id = request_id;
    header.sender_id = 77;
    return header;
  }
  // The reply's header; other replies are thrown away.
  Header Ask(uint16_t kind, Message parts, uint64_t request_id) {
    Message message = rpc::Encode(HeaderOf(kind, request_id), std::move(parts));
    REPLICANT_CHECK(
        socket_.Send(message, std::chrono::seconds(10)) == rpc::SendResult::kOk,
        "the service does not read");
    while (true) {
      Message reply;
      REPLICANT_CHECK(socket_.Receive(&reply, std::chrono::seconds(10)) ==
                          rpc::ReceiveResult::kOk,
                      "the service does not answer");
      const rpc::Envelope envelope = rpc::Decode(reply);
      const Header& header = envelope.header;
      if (header.kind == kind && header.request_id == request_id) {
        return header;
      }
    }
  }

  Shard shard_;
  Service service_;
  rpc::ZmqContext context_;
  rpc::Server server_;
  rpc::ZmqSocket socket_;
  std::optional<Thread> loop_;
  uint64_t session_ = 0;
  uint64_t last_request_ = 0;
};

void SendAll(Target& target, std::span<const std::byte> input) {
  const auto take = [&input](size_t count) {
    const auto taken = input.first(std::min(count, input.size()));
    input = input.subspan(taken.size());
    return taken;
  };
  // at most as many as the service keeps unanswered
  for (int i = 0; i < 32 && !input.empty(); ++i) {
    const auto what = std::to_integer<uint8_t>(take(1)[0]);
    // two bits of it say how many parts there are
    Message parts;
    for (int part = 0; part < 1 + (what >> 5) % 3 && input.size() >= 2;
         ++part) {
      const auto length = take(2);
      parts.push_back(
          Frame::Copy(take(std::to_integer<size_t>(length[0]) +
                           256 * (std::to_integer<size_t>(length[1]) % 16))));
    }
    target.Send(what, std::move(parts));
  }
  target.CheckAlive();
}

}  // namespace
}  // namespace replicant::replay

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const target = [] {
    replicant::LogOptions options;
    options.level = replicant::LogLevel::kOff;
    replicant::InitLogging(options);
    return new replicant::replay::Target;
  }();
  replicant::replay::SendAll(*target, std::as_bytes(std::span(data, size)));
  return 0;
}
