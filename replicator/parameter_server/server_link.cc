#include "replicator/parameter_server/server_link.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace replicant::replicator {
namespace {

using namespace std::chrono_literals;
using Status = ServerReply::Status;

// Time during which a worker that ends tries to reach a server.
constexpr auto kLeaveTime = 2s;
// A request without an answer is repeated after this time.
constexpr auto kAttempt = 5s;
// Interval of a wait for one server at which it and the others are looked for.
constexpr auto kLook = 500ms;

}  // namespace

ServerLink::ServerLink(rpc::ZmqContext& context, Options options,
                       const rpc::GroupKey& key)
    : options_(std::move(options)),
      run_(rpc::RandomId()),
      client_(context, ParameterServerProtocol(),
              {.socket = {.curve = key.client_role()},
               .name = fmt::format("worker-{}", options_.worker)}) {
  Follow();
}

std::string ServerLink::Name() const {
  return endpoint_.empty() ? fmt::format("parameter server {}", options_.server)
                           : fmt::format("parameter server {} at {}",
                                         options_.server, endpoint_);
}

void ServerLink::Follow() {
  const std::string endpoint = options_.find();
  is_away_ = endpoint.empty();
  if (is_away_ || endpoint == endpoint_) return;
  client_.Connect(endpoint);
  if (!endpoint_.empty()) {
    spdlog::info("{} is now at {}", Name(), endpoint);
  }
  endpoint_ = endpoint;
}

void ServerLink::Start(ServerMessage kind, uint64_t sequence, uint32_t step,
                       const std::vector<TensorView>& tensors,
                       std::string what) {
  kind_ = kind;
  what_ = std::move(what);
  payload_ = rpc::EncodeMessage(ServerRequest{.worker = options_.worker,
                                              .run = run_,
                                              .sequence = sequence,
                                              .step = step});
  AddTensors(tensors, &payload_);
  Send();
}

ServerLink::Answer ServerLink::Finish() {
  Answer answer = Await();
  // the server may restart again while the worker joins
  while (answer.status == Status::kJoinFirst) {
    JoinAgain();
    Send();
    answer = Await();
  }
  return answer;
}

void ServerLink::End() {
  if (is_away_) return;
  payload_ =
      rpc::EncodeMessage(ServerRequest{.worker = options_.worker, .run = run_});
  kind_ = ServerMessage::kEnd;
  const rpc::CallReply reply =
      client_.Call(static_cast<uint16_t>(kind_), rpc::Share(payload_),
                   {.timeout = kLeaveTime, .is_idempotent = true});
  if (reply.result != rpc::CallResult::kOk) {
    spdlog::warn("{} was not told of the end", Name());
  }
}

int64_t ServerLink::Join() {
  rpc::Message payload =
      rpc::EncodeMessage(ServerRequest{.worker = options_.worker, .run = run_});
  payload.push_back(rpc::Frame::Copy(options_.description));
  const int64_t version =
      AskBetween(ServerMessage::kJoin, std::move(payload), "join").version;
  joined_session_ = client_.session_id();
  return version;
}

void ServerLink::CheckServer() {
  Follow();
  client_.Process(Clock::Duration(0));
  const uint64_t session = client_.session_id();
  if (joined_session_ != 0 && session != 0 && session != joined_session_) {
    JoinAgain();
  }
}

// A server that was restarted without a checkpoint restarts at version 0;
// workers wait until the first worker has assigned its variables.
void ServerLink::JoinAgain() {
  if (Join() > 0 || !values_to_assign) return;
  spdlog::warn("{} has lost its variables and takes the variables of worker {}",
               Name(), options_.worker);
  rpc::Message payload =
      rpc::EncodeMessage(ServerRequest{.worker = options_.worker, .run = run_});
  AddTensors(values_to_assign(), &payload);
  AskBetween(ServerMessage::kAssign, std::move(payload), "take variables");
}

ServerLink::Answer ServerLink::AskBetween(ServerMessage kind,
                                          rpc::Message payload,
                                          const std::string& what) {
  std::swap(payload, payload_);
  const ServerMessage other_kind = std::exchange(kind_, kind);
  const std::string other_what = std::exchange(what_, what);
  const auto other_request = request_;
  Send();
  Answer answer = Await();
  std::swap(payload, payload_);
  kind_ = other_kind;
  what_ = other_what;
  request_ = other_request;
  return answer;
}

void ServerLink::Send() {
  request_ = client_.Start(static_cast<uint16_t>(kind_), rpc::Share(payload_),
                           {.timeout = options_.timeout,
                            .is_idempotent = true,
                            .has_crc = true,
                            .attempt_timeout = kAttempt});
  REPLICANT_CHECK(request_.has_value(), "too many requests");
}

rpc::CallReply ServerLink::AwaitReply() {
  const auto now = [] { return Clock::Real().Now(); };
  Clock::TimePoint next = now() + kLook;
  // or was not asked to stop
  Clock::TimePoint connected_at = now();
  bool was_away = false;
  while (true) {
    if (client_.IsDone(*request_)) {
      rpc::CallReply reply = client_.Wait(*request_);
      // the time of one that was away does not count
      if (reply.result != rpc::CallResult::kTimeout || !was_away) return reply;
      was_away = false;
      Send();
    }
    client_.Process(std::max(next - now(), Clock::Duration(0)));
    if (now() < next) continue;
    next = now() + kLook;
    Follow();
    was_away |= is_away_;
    if (!options_.should_stop() || client_.IsResponsive()) {
      connected_at = now();
    } else if (now() - connected_at >= kLeaveTime) {
      is_away_ = true;
      throw ServerAway(fmt::format("worker {}: {} is away, asked to {}",
                                   options_.worker, Name(), what_));
    }
    // another server may be the one that all wait for
    if (on_long_wait) on_long_wait();
  }
}

ServerLink::Answer ServerLink::Await() {
  rpc::CallReply reply = AwaitReply();
  switch (reply.result) {
    case rpc::CallResult::kOk:
      break;
    case rpc::CallResult::kError:
      throw CommError(
          fmt::format("{} refuses to {}: {}", Name(), what_, reply.error_text));
    default:
      throw CommError(fmt::format(
          "worker {}: {} has not answered for {:.0f} s, asked to {}; hint: "
          "`learner --role server --index {}` serves there",
          options_.worker, Name(), ToSeconds(options_.timeout), what_,
          options_.server));
  }
  const ServerReply header = rpc::DecodeFirstPart<ServerReply>(reply.payload);
  reply.payload.erase(reply.payload.begin());
  return {header.status, header.version, std::move(reply.payload)};
}

}  // namespace replicant::replicator
