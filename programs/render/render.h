#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "programs/commands.h"
#include "programs/run_config.h"

// Files by which a batch system runs a configuration: `fleet --render BACKEND
// --to FOLDER`.
namespace replicant::programs {

struct RenderInput {
  const RunConfig& config;
  std::string resolved_yaml;
  const Commands& commands;
  const Registry& registry;
  std::filesystem::path folder;  // absolute
};

// Writes config.yaml and the files of `backend`, "slurm" or "kubernetes", into
// `folder`, which is new or empty, and returns what to do with them, in lines
// for a terminal. Throws ConfigError for another backend and for a
// configuration that does not fit it, and IoError.
std::string Render(const std::string& backend, const RenderInput& input);

// The parts of Render(), which makes the folder and config.yaml.
std::string RenderSlurm(const RenderInput& input);
std::string RenderKubernetes(const RenderInput& input);

// Replaces each @NAME@ of a template by its value; one without a value is a
// bug.
struct TemplateValue {
  std::string name;
  std::string value;
};
std::string FillIn(std::string text, const std::vector<TemplateValue>& values);

// The configuration of the input with some keys changed, "KEY=VALUE". Throws
// ConfigError if it does not load.
std::string WithSettings(const RenderInput& input,
                         const std::vector<std::string>& settings);

// Actors of each of `num_hosts` hosts, rounded up.
int64_t ActorsPerHost(const RunConfig& config, int64_t num_hosts);

}  // namespace replicant::programs
