#include "actors/remote_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "actors/inference_protocol.h"
#include "base/error.h"

namespace replicant::actors {
namespace {

// How often a waiting call checks whether the actor ends.
constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kAskAgain = std::chrono::milliseconds(20);
// A server may be away for long.
constexpr auto kPatience = std::chrono::hours(24);
// A server computes a batch within this time.
constexpr auto kAttempt = std::chrono::seconds(30);

Shape RowsOf(int64_t count, const Shape& row) {
  std::vector<int64_t> dims = {count};
  dims.insert(dims.end(), row.dims().begin(), row.dims().end());
  return Shape(dims);
}

}  // namespace

RemotePolicy::RemotePolicy(const agents::TaskSpec& task,
                           RemotePolicyOptions options)
    : options_(std::move(options)),
      observations_(task.observation_dtype(),
                    RowsOf(options_.num_environments, task.observation)),
      states_(static_cast<size_t>(options_.num_environments * task.state_size)),
      actions_(DType::kF32,
               Shape({options_.num_environments, task.action_size()})),
      noise_scales_(static_cast<size_t>(options_.num_environments)),
      client_(context_, InferenceProtocol(),
              {.socket = {.curve = options_.curve}, .name = options_.name}) {
  Follow();
}

void RemotePolicy::Follow() {
  const std::string endpoint = options_.find_server();
  if (endpoint.empty() || endpoint == endpoint_) return;
  client_.Connect(endpoint);
  endpoint_ = endpoint;
}

std::optional<rpc::CallReply> RemotePolicy::Ask(uint16_t kind,
                                                rpc::Message request) {
  rpc::CallOptions call;
  call.timeout = kPatience;
  call.is_idempotent = true;
  call.attempt_timeout = kAttempt;
  const Clock::TimePoint begin = Clock::Real().Now();
  const auto id = client_.Start(kind, std::move(request), call);
  if (!id) throw CommError(endpoint_ + ": too many requests");
  while (!client_.WaitAny(kLook)) {
    if (options_.is_over()) return std::nullopt;
    Follow();
  }
  rpc::CallReply reply = client_.Wait(*id);
  waited_s_ += ToSeconds(Clock::Real().Now() - begin);
  if (reply.result == rpc::CallResult::kError &&
      (reply.error == rpc::ErrorCode::kInvalidArgument ||
       reply.error == rpc::ErrorCode::kMalformed)) {
    throw CommError(fmt::format("{}: {}", endpoint_, reply.error_text));
  }
  return reply;
}

TensorView RemotePolicy::Act(int64_t /*step*/) {
  while (!options_.is_over()) {
    const ActRequest request{.noise_scales = noise_scales_,
                             .states = states_,
                             .observations = observations_.bytes()};
    const auto reply = Ask(kActKind, request.Encode());
    if (!reply) break;
    if (reply->result != rpc::CallResult::kOk) {
      // it has no parameters yet, or ends: the next one answers
      std::this_thread::sleep_for(kAskAgain);
      continue;
    }
    const ActReply act = rpc::DecodeMessage<ActReply>(reply->payload);
    const std::span<float> actions = actions_.MutableSpan<float>();
    if (act.actions.size() != actions.size()) {
      throw CommError(fmt::format("{}: {} numbers of actions, expected {}",
                                  endpoint_, act.actions.size(),
                                  actions.size()));
    }
    std::ranges::copy(act.actions, actions.begin());
    version_ = act.version;
    agent_steps_ = act.agent_steps;
    break;
  }
  return actions_.view();
}

void RemotePolicy::AwaitParameters(Clock::Duration timeout) {
  const Clock::TimePoint deadline = Clock::Real().Now() + timeout;
  while (!version_ && !options_.is_over()) {
    const auto reply = Ask(kDescribeKind, {});
    if (!reply) return;
    if (reply->result == rpc::CallResult::kOk) {
      const InferenceInfo info =
          rpc::DecodeMessage<InferenceInfo>(reply->payload);
      const auto num_rows = static_cast<uint64_t>(options_.num_environments);
      const uint64_t row_bytes = observations_.size_bytes() / num_rows;
      const uint64_t state_size = states_.size() / num_rows;
      const auto action_size = static_cast<uint64_t>(actions_.shape()[1]);
      if (info.observation_bytes != row_bytes ||
          info.state_size != state_size || info.action_size != action_size) {
        throw CommError(fmt::format(
            "{}: the policy takes observations of {} bytes and states of {} "
            "numbers and returns actions of {}, but actor '{}' has {}, {} and "
            "{}; hint: give both the same task",
            endpoint_, info.observation_bytes, info.state_size,
            info.action_size, options_.name, row_bytes, state_size,
            action_size));
      }
      if (info.has_parameters) {
        version_ = info.version;
        agent_steps_ = info.agent_steps;
        return;
      }
    }
    if (Clock::Real().Now() >= deadline) return;
    std::this_thread::sleep_for(kAskAgain);
  }
}

}  // namespace replicant::actors
