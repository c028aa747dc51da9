#pragma once

#include <optional>
#include <vector>

#include "agents/agent.h"
#include "agents/d4pg/config.h"
#include "agents/d4pg/networks.h"

// Representation learning by prediction: a model of the next steps in the space
// of the encoder's embedding, whose loss trains the encoder (MR.Q,
// arXiv:2501.16142, section 4.1). Letters: B batch, H horizon, Z size of the
// embedding, A actions.
namespace replicant::agents::d4pg {

// Maps an embedding and an action to the embedding, the reward and the discount
// of the next step. Variables "model/0, 1, 3 ...", a Head. Its outputs are Z
// numbers, the logits of the reward, and the discount.
class Model {
 public:
  Model(Graph& graph, const D4pgConfig& config, const LearningSpec& spec,
        CallSite site = CallSite::Here());

  struct Result {
    Output embedding;      // [B, Z]
    Output reward_logits;  // [B, kNumRewardBins]
    Output discount;       // [B]
  };
  Result operator()(Output embedding, Output action,
                    CallSite site = CallSite::Here()) const;
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  int64_t embedding_size_;
  std::optional<Head> head_;
  std::vector<VariableId> variables_;
};

// Rewards r are predicted as symlog(r) = sign(r) ln(1 + |r|), by a distribution
// over kNumRewardBins atoms in [-kMaxSymlog, kMaxSymlog]. The target shares its
// weight between the two nearest ones (DreamerV3, arXiv:2301.04104).
inline constexpr int64_t kNumRewardBins = 65;
inline constexpr double kMaxSymlog = 10.0;

struct PredictionInputs {
  Output embedding;   // [B, Z] of o_t; the loss trains the encoder through it
  StepWindow window;  // its observations are not read
  Output next_embeddings;  // [B, H, Z], of the target encoder
};

struct PredictionLossResult {
  // mean_b sum_{i<k} (latent_weight * l + reward_weight * r + discount_weight *
  // d), with the three losses of step i. No gradient flows into the targets. []
  Output loss;
  // Means over the steps of all windows, [] each: of l, the mean over Z of
  // (predicted - next embedding)^2, and of r, the cross-entropy, nats.
  Output latent_loss;
  Output reward_loss;
};
// The model's predicted embedding is its input for the next step.
PredictionLossResult PredictionLoss(const Model& model,
                                    const PredictionInputs& inputs,
                                    const PredictionConfig& config,
                                    CallSite site = CallSite::Here());

}  // namespace replicant::agents::d4pg
