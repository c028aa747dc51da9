#include "env/failure.h"

namespace replicant::env {

Failure Failure::Read(config::Reader& reader) {
  Failure failure;
  reader.Field("probability", &failure.probability, {0.0, 1.0},
               "of a begin at each step");
  reader.Field("steps", &failure.steps, {1, 1'000'000},
               "agent steps that it lasts");
  return failure;
}

bool Fails(const Failure& failure, RandomStream& random, int* left) {
  if (failure.probability == 0.0) return false;
  // one draw a step, so that a failure does not shift the draws behind it
  const bool begins = random.Uniform() < failure.probability;
  if (*left == 0 && begins) *left = failure.steps;
  if (*left == 0) return false;
  --*left;
  return true;
}

}  // namespace replicant::env
