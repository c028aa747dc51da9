#pragma once

#include <filesystem>

#include "actors/actors_config.h"
#include "actors/evaluation_config.h"
#include "agents/d4pg/config.h"
#include "core/base/log.h"
#include "core/config/reader.h"
#include "env/task_config.h"
#include "fleet/fleet_config.h"
#include "learner/learner_config.h"
#include "models/resnet/config.h"
#include "models/sngan/config.h"
#include "replay/service/replay_config.h"

namespace replicant::programs {

// The configuration of a whole training. Each of its programs (fleet, learner,
// actor, evaluator, lockstep) reads all of it, so that a mistake is found by
// the first.
struct RunConfig {
  fleet::RunSection run;
  env::TaskConfig task;
  agents::d4pg::D4pgConfig agent;
  replay::ReplayConfig replay;
  actors::ActorsConfig actors;
  learner::LearnerConfig learner;
  models::resnet::ResNetConfig resnet50;
  models::sngan::SnganConfig sngan;
  actors::EvaluationConfig evaluation;
  fleet::FleetConfig fleet;
  LogOptions log;

  static RunConfig Read(config::Reader& reader);
};

// Where the programs of a run put what they make: run.dir, or runs/NAME.
std::filesystem::path RunFolderOf(const RunConfig& config);

}  // namespace replicant::programs
