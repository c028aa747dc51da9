#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agents/agent.h"
#include "base/config/load.h"
#include "base/config/reader.h"
#include "learner/data/images_config.h"
#include "learner/learner_config.h"
#include "learner/workload.h"
#include "replay/client/batch_source.h"
#include "replicator/replicator.h"

namespace replicant::learner {

// Arguments for making a workload.
struct WorkloadArguments {
  LearnerConfig learner;
  uint64_t seed = 0;
  std::unique_ptr<replicator::Replicator> replicator;

  data::ImageInput images = {};

  // --- a workload with an agent only ---
  agents::LearningSpec spec = {};
  // Draws the batches and outlives the workload; null in a process that follows
  // the steps of another.
  replay::BatchSource* source = nullptr;
};

// The images that a workload takes.
struct ImageNeeds {
  int64_t side = 224;       // pixels
  int64_t num_classes = 0;  // key num_classes of its section; 0: any number
};

// One value of `learner.workload`: a model that the learner can train.
struct WorkloadDef {
  std::string name;
  // Key of its section at the root of a run's configuration, and the section's
  // documentation.
  std::string section;
  std::string section_doc;
  // Keys of the section that are paths; relative ones are relative to the file
  // that contains the key.
  std::vector<std::string> path_keys = {};
  // Reads the section. The value is passed to the functions below.
  std::function<std::any(config::Reader& reader)> read_section;
  // Makes the agent that actors run; null for a workload that learns without
  // actors and a replay.
  std::function<std::shared_ptr<const agents::Agent>(const std::any& section)>
      make_agent;
  // Throws ConfigError for a configuration that cannot be trained.
  std::function<std::unique_ptr<Workload>(const std::any& section,
                                          WorkloadArguments arguments)>
      make;

  // May be null: then its images are not compared with the network.
  std::function<ImageNeeds(const std::any& section)> images_of = {};

  bool has_actors() const { return make_agent != nullptr; }
};

// The workloads of a program, by name.
//
// Thread-safety: const methods may run concurrently.
class WorkloadRegistry {
 public:
  // Throws InvalidArgument if the name or the section is taken.
  void Add(WorkloadDef workload);
  // Returns null if there is none.
  std::shared_ptr<const WorkloadDef> Find(std::string_view name) const;
  // "d4pg, resnet50, sngan"
  std::string Names() const;
  // In the order of Add().
  const std::vector<std::shared_ptr<const WorkloadDef>>& workloads() const {
    return workloads_;
  }

 private:
  std::vector<std::shared_ptr<const WorkloadDef>> workloads_;
};

// WorkloadDef::read_section of a Config with `static Config
// Read(config::Reader&)`.
template <typename Config>
std::any ReadSection(config::Reader& reader) {
  return Config::Read(reader);
}

// Defines a workload without actors. Config has `static Config
// Read(config::Reader&)`; `make` is called with it.
template <typename Config, typename Make>
WorkloadDef DefineWorkload(const std::string& name,
                           const std::string& section_doc, Make make) {
  return {.name = name,
          .section = name,
          .section_doc = section_doc,
          .read_section = &ReadSection<Config>,
          .make_agent = nullptr,
          .make = [make](const std::any& section, WorkloadArguments arguments) {
            return std::unique_ptr<Workload>(make(
                std::any_cast<const Config&>(section), std::move(arguments)));
          }};
}

}  // namespace replicant::learner
