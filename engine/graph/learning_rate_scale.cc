#include "engine/graph/learning_rate_scale.h"

#include "base/check.h"

namespace replicant::graph {
namespace {

thread_local double scale_in_force = 1.0;

}  // namespace

LearningRateScale::LearningRateScale(double scale) {
  REPLICANT_CHECK(scale_in_force == 1.0, "a scale within a scale of {}",
                  scale_in_force);
  scale_in_force = scale;
}

LearningRateScale::~LearningRateScale() { scale_in_force = 1.0; }

double LearningRateScale::InForce() { return scale_in_force; }

}  // namespace replicant::graph
