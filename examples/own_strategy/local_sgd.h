#pragma once

#include <memory>

#include "replicator/replicator.h"
#include "replicator/strategy.h"

// Local SGD (Stich 2018, arXiv:1805.09767): every replica trains alone, on its
// own batches, and after every `period` steps all replicas continue from the
// mean of their variables. They communicate `period` times less often than
// replicas that average gradients; with period 1 and plain SGD both are the
// same.
//
// - Each replica is a separate group: primitives are the identity.
// - Step::Run() makes one step on every replica, each on a thread.
// - Floating variables are averaged, optimizer slots too; others move alike.
// - variables() averages first, so that a checkpoint and what is published are
//   never one replica's.
//
// Throws what MakeReplicator() throws for Strategy::kSingle.
std::unique_ptr<replicant::replicator::Replicator> MakeLocalSgd(
    const replicant::replicator::StrategyRequest& request, int period);

// As a strategy of a program's registry:
//
//   registry.strategies.Add(kLocalSgd<8>);
template <int kPeriod>
constexpr replicant::replicator::Strategy kLocalSgd{
    .name = "local_sgd",
    .doc =
        "several replicas in one process, each with its own batches, which "
        "average their variables every few steps",
    .is_synchronous = false,
    .replicas_of_group =
        [](const replicant::replicator::ReplicationConfig&) { return 1; },
    .make =
        [](const replicant::replicator::StrategyRequest& request) {
          return MakeLocalSgd(request, kPeriod);
        }};
