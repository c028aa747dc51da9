#include "actors/inference_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace replicant::actors {
namespace {

// The server stops waiting for an actor that has sent no request for this long:
// it resets its environments, or waits for the replay.
constexpr auto kAtWork = std::chrono::seconds(1);

}  // namespace

InferenceServer::InferenceServer(BatchedPolicy* policy,
                                 InferenceServerOptions options)
    : policy_(*policy), options_(std::move(options)) {}

void InferenceServer::AttachTo(rpc::Server& server) {
  server.Handle(
      kDescribeKind,
      [this](rpc::Request& /*request*/, rpc::Responder responder) {
        responder.Reply(rpc::EncodeMessage(InferenceInfo{
            .observation_bytes =
                static_cast<uint64_t>(policy_.observation_bytes()),
            .state_size = static_cast<uint64_t>(policy_.state_size()),
            .action_size = static_cast<uint64_t>(policy_.action_size()),
            .has_parameters = version_.has_value(),
            .version = version_.value_or(0),
            .agent_steps = agent_steps_}));
      },
      rpc::Server::Answers::kAtOnce);
  server.Handle(kActKind,
                [this](rpc::Request& request, rpc::Responder responder) {
                  HandleAct(request, responder);
                });
  server.OnTick([this] { Tick(); });
  server.OnPeerExpired(
      [this](const rpc::Peer& peer) { asked_at_.erase(peer.id); });
}

void InferenceServer::HandleAct(rpc::Request& request,
                                rpc::Responder responder) {
  Waiting waiting{.responder = responder,
                  .payload = std::move(request.payload),
                  .request = {},
                  .reply = {},
                  .since = options_.clock->Now()};
  waiting.request = ActRequest::Decode(waiting.payload);
  const size_t num_rows = waiting.request.noise_scales.size();
  const size_t wanted =
      num_rows * static_cast<size_t>(policy_.observation_bytes());
  const size_t wanted_states =
      num_rows * static_cast<size_t>(policy_.state_size());
  if (waiting.request.observations.size() != wanted ||
      waiting.request.states.size() != wanted_states) {
    throw InvalidArgument(fmt::format(
        "inference: {} bytes and {} numbers of a state for {} observations, "
        "expected {} and {}; hint: give server and actors the same task",
        waiting.request.observations.size(), waiting.request.states.size(),
        num_rows, wanted, wanted_states));
  }
  asked_at_[request.peer_id] = waiting.since;
  ++metrics_.requests;
  waiting_.push_back(std::move(waiting));
  if (version_ && IsEverybodyHere()) RunBatch();
}

bool InferenceServer::IsEverybodyHere() const {
  const Clock::TimePoint now = options_.clock->Now();
  const auto num_at_work = std::ranges::count_if(
      asked_at_,
      [now](const auto& entry) { return now - entry.second <= kAtWork; });
  return static_cast<int64_t>(waiting_.size()) >= num_at_work;
}

void InferenceServer::PollParameters() {
  const auto newest = options_.poll_parameters();
  if (!newest) return;
  policy_.SetParameters(newest->bytes,
                        fmt::format("parameters of step {}", newest->version));
  version_ = newest->version;
  agent_steps_ = newest->agent_steps;
}

void InferenceServer::Tick() {
  PollParameters();
  if (waiting_.empty() || !version_) return;
  const bool is_due =
      options_.clock->Now() - waiting_.front().since >= options_.max_wait;
  if (is_due || IsEverybodyHere()) RunBatch();
}

void InferenceServer::RunBatch() {
  PollParameters();
  std::vector<BatchedPolicy::Rows> rows;
  for (Waiting& one : waiting_) {
    const size_t count = one.request.noise_scales.size();
    one.reply.version = *version_;
    one.reply.agent_steps = agent_steps_;
    one.reply.actions.resize(count *
                             static_cast<size_t>(policy_.action_size()));
    rows.push_back({.observations = one.request.observations,
                    .states = one.request.states,
                    .noise_scales = one.request.noise_scales,
                    .actions = one.reply.actions});
    metrics_.rows += static_cast<int64_t>(count);
  }
  policy_.Act(rows);
  ++metrics_.batches;
  for (const Waiting& one : waiting_) {
    one.responder.Reply(rpc::EncodeMessage(one.reply));
  }
  waiting_.clear();
}

}  // namespace replicant::actors
