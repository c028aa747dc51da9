#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agents/agent.h"
#include "agents/d4pg/config.h"
#include "agents/d4pg/networks.h"

// The representation of MR.Q (arXiv:2501.16142, section 4.2). A model predicts
// the next steps: z_s = f(s) is the encoder's embedding, z_sa = g(z_s, a), and
// one linear layer maps z_sa to the next z_s, the reward and the end. The
// model's loss alone trains f and g. The policy reads z_s, the critic z_sa.
// Letters: B batch, H horizon, T targets, Z size of z_s, Y size of z_sa, A
// actions.
//
// Variables:
//
//   representation/action/0     Linear (then elu): a
//   representation/joint/0, 1, 3, 4 ...
//                               Linear, LayerNorm (then elu) ..., Linear:
//                               z_s next to the former, to z_sa
//   representation/predictor    Linear: next z_s, reward logits, end
namespace replicant::agents::d4pg {

// g.
class StateActionEncoder {
 public:
  StateActionEncoder(Graph& graph, const D4pgConfig& config,
                     const LearningSpec& spec,
                     CallSite site = CallSite::Here());

  // z_s [B, Z], action [B, A] -> z_sa [B, Y]. Appends the outputs of the
  // activations, [B, N] each, to `hidden` unless it is null.
  Output operator()(Output z_s, Output action,
                    std::vector<Output>* hidden = nullptr,
                    CallSite site = CallSite::Here()) const;
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  std::optional<nn::Dense> action_;
  // all linear layers after it; the last one has no norm
  std::vector<nn::Dense> layers_;
  std::vector<nn::LayerNorm> norms_;
  std::vector<VariableId> variables_;
};

class Predictor {
 public:
  Predictor(Graph& graph, const D4pgConfig& config, const LearningSpec& spec,
            CallSite site = CallSite::Here());

  struct Result {
    Output z_s;            // [B, Z], of the next observation
    Output reward_logits;  // [B, kNumRewardBins]
    Output end;            // [B], 1 where the episode terminates
  };
  Result operator()(Output z_sa, CallSite site = CallSite::Here()) const;
  const std::vector<VariableId>& variables() const {
    return linear_->variables();
  }

 private:
  int64_t z_s_size_;
  std::optional<nn::Dense> linear_;
};

// Rewards are predicted by a distribution over kNumRewardBins atoms, symexp(u)
// = sign(u) (e^|u| - 1) of equally spaced u in [-kMaxSymlog, kMaxSymlog]. The
// target shares its weight between the two nearest atoms in proportion to
// their nearness (arXiv:2501.16142, section 4.2.1).
inline constexpr int64_t kNumRewardBins = 65;
inline constexpr double kMaxSymlog = 10.0;
// reward [B] -> [B, kNumRewardBins]
Output TwoHotReward(Output reward, CallSite site = CallSite::Here());

struct RepresentationInputs {
  Output z_s;         // [B, Z] of o_t; the loss trains the encoder through it
  StepWindow window;  // its observations are not read
  Output targets;     // [B, T, Z]: theirs by the target encoder
};

struct RepresentationLossResult {
  // mean_b sum_{i<k} (latent_weight * l + reward_weight * r + end_weight * e +
  // contrast_weight * c), with the losses of step i. Where T < H, l and c of
  // the first target's step count once, those of the n - 1 other targets'
  // (k - 1) / (n - 1) times, and the rest 0: on average l counts as often, and
  // c has fewer negatives. No gradient flows into the targets. []
  Output loss;
  // [] each; their means over the replicas are the means over the steps of all
  // windows: "latent_loss" of l, the mean over Z of (predicted - next z_s)^2;
  // "reward_loss" of r, the cross-entropy, nats; "end_loss" of e, (predicted -
  // end)^2; and with a contrast_weight "contrast_loss" of c, nats: InfoNCE
  // (arXiv:1807.03748, eq. 4) of predicted and next z_s, by the cosine over
  // contrast_temperature, against the targets of the batch's other windows at
  // the same step (DR.Q, arXiv:2605.11711).
  std::vector<std::pair<std::string, Output>> parts;
  Output z_sa;  // [B, Y], of o_t and its action
  // z_s of o_t and g's activations on the way to z_sa
  std::vector<Output> hidden;
};
// The predicted z_s is the input of the next step.
//
// Differs from arXiv:2501.16142: the end has its weight from the first update
// on, not only after the first episode that terminated, and layer norms have a
// weight and a bias, as everywhere here. Negatives of the contrast are the rows
// of all replicas.
RepresentationLossResult RepresentationLoss(nn::ReplicaContext& replica,
                                            const StateActionEncoder& encoder,
                                            const Predictor& predictor,
                                            const RepresentationInputs& inputs,
                                            const RepresentationConfig& config,
                                            CallSite site = CallSite::Here());

}  // namespace replicant::agents::d4pg
