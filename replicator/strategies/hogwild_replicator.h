#pragma once

#include <cstdint>
#include <memory>

#include "replicator/replicator.h"

namespace replicant::replicator {

// Strategy `hogwild` (arXiv:1106.5730): replicas in this process, each with a
// separate thread and plans, that update the same variables at the same time
// without locks. An update may read a variable that another replica has written
// in part, and may be overwritten, and lost.
//
// - Each replica is a group by itself: primitives are the identity, and each
//   step is one replica's, on its batch.
// - Step::Run() gives each idle replica a batch and returns when one of them is
//   done. The others continue, and keep their results for the next call.
//   variables() waits until every replica is idle.
// - Optimizer slots are shared like their parameters, so that a checkpoint has
//   the form of a single replica's.
// - Counters are exact: a variable of whole numbers that is not trained is
//   private to a replica during a step, and must move by the same amount in
//   every step. A step begins at the count of steps begun before it.
// - Accumulation: each replica adds up its gradients, and updates with
//   its last batch. A counter is read at the update's first batch. variables()
//   waits for batches, not for updates: sums stay where they are.
// - ReplicaAgreement: kMean and kFirst are shared; kPerReplica is every
//   replica's own, and the first one's is saved.
//
// With one replica it computes what `single` computes, bit by bit.
std::unique_ptr<Replicator> MakeHogwildReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend);

}  // namespace replicant::replicator
