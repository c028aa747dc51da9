#pragma once

#include <memory>

#include "agents/agent.h"
#include "agents/d4pg/config.h"

namespace replicant::agents::d4pg {

// Makes the D4PG agent (arXiv:1804.08617) of agents/d4pg/update.h.
//
// Losses "critic_loss" and "policy_loss", with a representation also those of
// RepresentationLossResult; values "value". The policy reads the variables
// "encoder/..." and "policy/...", with average_decay their averages
// "average/..." (BuildPolicy()).
std::shared_ptr<const Agent> MakeAgent(const D4pgConfig& config);

}  // namespace replicant::agents::d4pg
