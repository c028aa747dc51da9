#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// The 51 tasks of the DeepMind Control Suite, by domain in alphabetical order.
//
// Model edits, reset distributions, step order, observations, rewards,
// discounts and time limits match dm_control 1.0.50 on MuJoCo 3.17.0; only the
// random numbers differ.
//
// Source: arXiv:1801.00690, arXiv:2006.12983.
std::vector<TaskDefinition> SuiteTasks();

}  // namespace replicant::env
