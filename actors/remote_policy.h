#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/policy.h"
#include "agents/task_spec.h"
#include "base/clock.h"
#include "base/rpc/client.h"
#include "base/tensor/host_tensor.h"

namespace replicant::actors {

struct RemotePolicyOptions {
  // The present address of the inference server; empty while it is away.
  std::function<std::string()> find_server;
  rpc::CurveRole curve = {};
  std::string name = "actor";
  int64_t num_environments = 1;
  // Whether the actor ends; from then on no call waits for the server.
  std::function<bool()> is_over = [] { return false; };
};

// A policy that the inference server of the host computes
// (actors/inference_server.h). While the server is away, calls wait for the
// next one, which may be on another host: a request without an answer is sent
// again.
//
// Thread-safety: one thread makes all calls.
class RemotePolicy : public Policy {
 public:
  // Connects in the background. Throws CommError for an endpoint that cannot be
  // parsed.
  RemotePolicy(const agents::TaskSpec& task, RemotePolicyOptions options);

  MutableTensorView observations() override {
    return observations_.mutable_view();
  }
  std::span<float> states() override { return states_; }
  std::span<float> noise_scales() override { return noise_scales_; }
  // `step` is not used: the server keys the noise. Once is_over() is true, may
  // return the actions of the last call. Throws CommError if the server serves
  // another task.
  TensorView Act(int64_t step) override;

  // Asks whether the server has parameters; waits for them until `timeout`.
  // Throws CommError if it serves another task.
  void AwaitParameters(Clock::Duration timeout);
  // The learner's step of the parameters of the last actions; empty before the
  // first ones.
  std::optional<uint64_t> version() const { return version_; }
  // Agent steps of all actors that the learner had counted at that step.
  int64_t agent_steps() const { return agent_steps_; }
  // Time spent in waits for the server.
  double waited_s() const { return waited_s_; }

 private:
  // The answer; std::nullopt if is_over().
  std::optional<rpc::CallReply> Ask(uint16_t kind, rpc::Message request);
  // Connects to the server's present address.
  void Follow();

  const RemotePolicyOptions options_;
  HostTensor observations_;
  std::vector<float> states_;
  HostTensor actions_;
  std::vector<float> noise_scales_;
  rpc::ZmqContext context_;
  rpc::Client client_;
  std::string endpoint_;  // the last one; empty: none was known yet
  std::optional<uint64_t> version_;
  int64_t agent_steps_ = 0;
  double waited_s_ = 0.0;
};

}  // namespace replicant::actors
