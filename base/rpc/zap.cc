#include "base/rpc/zap.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <array>
#include <bit>
#include <chrono>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/rpc/zmq_call.h"

namespace replicant::rpc {
namespace {

constexpr size_t kKeyBytes = 32;

// The binary form of a Z85 key, as it comes in a request.
std::string ToBinary(const std::string& key) {
  std::array<uint8_t, kKeyBytes> bytes{};
  if (!IsCurveKey(key) ||
      zmq_z85_decode(bytes.data(), key.c_str()) == nullptr) {
    throw InvalidArgument(fmt::format(
        "ZapHandler: '{}' is not a public key of 40 Z85 characters", key));
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::unordered_set<std::string> ToBinaryKeys(
    const std::vector<std::string>& keys) {
  std::unordered_set<std::string> binary;
  for (const std::string& key : keys) binary.insert(ToBinary(key));
  return binary;
}

}  // namespace

ZapHandler::ZapHandler(ZmqContext& context,
                       const std::vector<std::string>& allowed_public_keys)
    : context_(context),
      allowed_keys_(ToBinaryKeys(allowed_public_keys)),
      requests_(context, SocketType::kRep),
      stop_sender_(context, SocketType::kPair),
      stop_receiver_(context, SocketType::kPair) {
  Open();
  thread_.emplace("zap", [this](const Thread::StopToken& stop) { Run(stop); });
}

void ZapHandler::Open() {
  REPLICANT_CHECK(!context_.has_zap_handler_,
                  "a second ZapHandler of one context");
  requests_.Bind("inproc://zeromq.zap.01");
  stop_receiver_.Bind("inproc://replicant.zap.stop");
  stop_sender_.Connect("inproc://replicant.zap.stop");
  requests_.DetachFromThread();
  stop_receiver_.DetachFromThread();
  context_.has_zap_handler_ = true;
}

ZapHandler::~ZapHandler() {
  REPLICANT_CHECK(context_.num_curve_servers_ == 0,
                  "{} CURVE servers outlive the ZapHandler",
                  context_.num_curve_servers_.load());
  context_.has_zap_handler_ = false;
  thread_->RequestStop();
  Message stop = MakeMessage(Frame());
  // if the context is shut down, the thread has ended already
  static_cast<void>(stop_sender_.Send(stop, std::chrono::seconds(0)));
}

void ZapHandler::Run(const Thread::StopToken& stop) {
  std::array<PollItem, 2> items{};
  items[0].socket = &requests_;
  items[1].socket = &stop_receiver_;
  while (!stop.IsStopRequested()) {
    if (Poll(items, std::chrono::hours(1)) == PollResult::kClosed) return;
    Message request;
    if (requests_.Receive(&request, Clock::Duration(0)) != ReceiveResult::kOk) {
      continue;
    }
    Message answer = Answer(request);
    static_cast<void>(requests_.Send(answer, Clock::Duration(0)));
  }
}

Message ZapHandler::Answer(const Message& request) {
  // version, request id, domain, address, identity, mechanism, credentials
  const bool is_allowed =
      request.size() == 7 && request[0].text() == "1.0" &&
      request[5].text() == "CURVE" &&
      allowed_keys_.contains(std::string(request[6].text()));
  if (!is_allowed) {
    // refused clients try again and again: log the 1st, 2nd, 4th, 8th ... time
    const uint64_t count = ++num_refused_;
    if (std::has_single_bit(count)) {
      spdlog::warn(
          "refused a client from {}: its key is not in the list ({} "
          "refused so far)",
          request.size() > 3 ? request[3].text() : "?", count);
    }
  }
  Message answer;
  const std::string_view request_id =
      request.size() > 1 ? request[1].text() : "";
  const std::string_view status = is_allowed ? "200" : "400";
  const std::string_view text = is_allowed ? "OK" : "unknown key";
  // version, request id, status code and text, user id, metadata
  for (const std::string_view part :
       {std::string_view("1.0"), request_id, status, text, std::string_view(),
        std::string_view()}) {
    answer.push_back(Frame::Copy(part));
  }
  return answer;
}

}  // namespace replicant::rpc
