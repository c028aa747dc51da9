// Every program of a run, with one more strategy.
//
//   local_sgd fleet --config configs/cartpole_swingup_state.yaml
//     --set learner.replication.strategy=local_sgd
//     --set learner.replication.replicas=2
#include "local_sgd.h"
#include "programs/program.h"

int main(int argc, char** argv) {
  auto registry = replicant::programs::Registry::BuiltIn();
  registry.strategies.Add(kLocalSgd<8>);
  return replicant::programs::RunProgram(argc, argv, registry);
}
