#include "programs/export/export_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/tensor/safetensors.h"
#include "engine/export/onnx.h"
#include "engine/export/stablehlo.h"
#include "engine/runtime/checkpoint.h"
#include "engine/runtime/executor.h"
#include "learner/workloads/model_file.h"
#include "programs/run/find_checkpoint.h"
#include "programs/run/make_workload.h"
#include "replicator/inspect/stablehlo_replicator.h"

namespace replicant::programs {
namespace {

// Rows of the graph that becomes a model of any number of rows: no layer has
// this size.
constexpr int64_t kOnnxRows = 7919;

struct ExportOptions {
  std::string checkpoint;
  std::string which = WhichOption::kDefault;
  std::string file;
};

// The facts that a user of the model needs.
std::map<std::string, std::string> MetadataOf(
    const Invocation& invocation, const std::filesystem::path& checkpoint,
    int64_t step) {
  const RunConfig& config = invocation.config();
  std::map<std::string, std::string> metadata = {
      {"workload", config.learner.workload},
      {"checkpoint", checkpoint.filename().string()},
      {"step", std::to_string(step)}};
  if (!config.has_actors()) return metadata;
  const agents::TaskSpec task = TaskOf(invocation);
  metadata["task"] = config.task.name;
  metadata["observation"] = task.observation.ToString();
  metadata["action_minimum"] =
      fmt::format("[{}]", fmt::join(task.action_minimum, ", "));
  metadata["action_maximum"] =
      fmt::format("[{}]", fmt::join(task.action_maximum, ", "));
  metadata["action_repeat"] = std::to_string(task.action_repeat);
  if (task.has_pixels) {
    metadata["frame_stack"] = std::to_string(task.frame_stack);
    metadata["state_size"] = std::to_string(task.state_size);
    const bool is_simulation =
        !invocation.registry.tasks.Find(config.task.name).make_environment;
    if (task.images.empty() && is_simulation) {
      metadata["camera"] = config.task.pixels.Cameras()[0].camera;
    }
    for (const agents::ImageSpec& image : task.images) {
      metadata[image.name] = image.shape.ToString();
    }
  }
  return metadata;
}

std::string OnnxOf(const Invocation& invocation,
                   const std::filesystem::path& checkpoint, int64_t step,
                   learner::Workload& workload) {
  graph::Graph graph;
  const auto outputs = workload.BuildModel(graph, kOnnxRows);
  if (outputs.empty()) {
    throw ConfigError(fmt::format(
        "--to: learner.workload {} has no model for ONNX; allowed here: a "
        "file .safetensors",
        invocation.config().learner.workload));
  }
  return exporting::ToOnnx(
      graph, {.name = invocation.config().run.name,
              .outputs = outputs,
              .value_of =
                  [&](const std::string& name) {
                    return workload.variables().Get(name);
                  },
              .batch_size = kOnnxRows,
              .metadata = MetadataOf(invocation, checkpoint, step)});
}

void Write(const std::filesystem::path& file, const std::string& content) {
  AtomicWriteFile(file, content);
  fmt::print("wrote {}\n", file.string());
}

// Throws ConfigError if `file` exists and is no description of a model, such as
// the configuration of the run. Descriptions have the same first line.
void CheckDescribes(const std::filesystem::path& file,
                    const std::string& description) {
  const std::string first = description.substr(0, description.find('\n') + 1);
  if (!std::filesystem::exists(file) || ReadFile(file).starts_with(first)) {
    return;
  }
  throw ConfigError(fmt::format(
      "--to: '{}' exists and is not a description of a model, which is written "
      "beside the model; want another name",
      file.string()));
}

// Beside `file`: a.mlir becomes a-generator.mlir for the step of that name.
std::filesystem::path FileOf(const std::filesystem::path& file,
                             const std::string& step) {
  if (step == runtime::CompileOptions{}.name) return file;
  return std::filesystem::path(file).replace_filename(
      fmt::format("{}-{}.mlir", file.stem().string(), step));
}

// The training steps of a configuration, for all its replicas, with the values
// of a checkpoint or first ones.
int ExportSteps(const Invocation& invocation,
                const std::optional<std::filesystem::path>& checkpoint,
                const std::filesystem::path& file) {
  const RunConfig& config = invocation.config();
  replicator::ModuleReplicator modules = replicator::MakeModuleReplicator(
      config.learner.replication, static_cast<uint64_t>(config.run.seed));
  const auto workload =
      MakeWorkload(invocation, std::move(modules.replicator),
                   /*source=*/nullptr, /*reads_images=*/false);
  if (checkpoint) {
    runtime::LoadCheckpoint(*checkpoint, workload->variables());
  } else {
    workload->Begin();
  }
  std::set<std::string> used;
  for (const replicator::StableHloStep& step : *modules.steps) {
    const std::filesystem::path path = FileOf(file, step.name);
    Write(path, step.module.text);
    Write(path.string() + ".json", exporting::DescribeStableHlo(step.module));
    for (const exporting::StableHloArgument& argument : step.module.arguments) {
      if (argument.kind == exporting::StableHloArgument::Kind::kVariable) {
        used.insert(argument.name);
      }
    }
  }
  std::vector<HostTensor> values;
  std::vector<NamedTensorView> tensors;
  for (const std::string& name : used) {
    values.push_back(workload->variables().Get(name));
    tensors.push_back({name, values.back().view()});
  }
  const std::string beside = file.string() + ".safetensors";
  WriteSafetensors(beside, tensors);
  fmt::print("wrote {}\n", beside);
  return 0;
}

int ExportModel(const Invocation& invocation,
                const std::filesystem::path& checkpoint,
                const std::filesystem::path& file) {
  const auto workload = MakeModel(invocation, invocation.config().has_actors()
                                                  ? TaskOf(invocation)
                                                  : agents::TaskSpec());
  // RUN/best has the policy alone
  const std::vector<std::string> variables = workload->ModelVariables();
  const int64_t step = runtime::LoadPartOfCheckpoint(checkpoint, variables,
                                                     workload->variables())
                           .step;
  fmt::print("step {}\n", step);
  if (file.extension() == ".onnx") {
    Write(file, OnnxOf(invocation, checkpoint, step, *workload));
    return 0;
  }
  const std::string description = workload->ModelDescription();
  const auto described = std::filesystem::path(file).replace_extension(".yaml");
  if (!description.empty()) CheckDescribes(described, description);
  learner::WriteModel(file, variables, step, workload->variables());
  fmt::print("wrote {}\n", file.string());
  if (!description.empty()) Write(described, description);
  return 0;
}

int Export(const Invocation& invocation, const ExportOptions& options) {
  const std::filesystem::path file = options.file;
  const std::string extension = file.extension().string();
  if (extension != ".safetensors" && extension != ".onnx" &&
      extension != ".mlir") {
    throw ConfigError(
        fmt::format("--to: got '{}', want a file .safetensors, .onnx or .mlir",
                    options.file));
  }
  if (std::filesystem::exists(file.parent_path() / "checkpoint.json")) {
    throw ConfigError(
        fmt::format("--to: '{}' lies in the folder of a checkpoint, which is "
                    "never overwritten; want a file in another folder",
                    options.file));
  }
  std::optional<std::filesystem::path> checkpoint;
  if (!options.checkpoint.empty()) {
    checkpoint =
        FindCheckpoint(kCheckpointOption, options.checkpoint, options.which);
    fmt::print("checkpoint {}\n", checkpoint->string());
  }
  if (extension == ".mlir") return ExportSteps(invocation, checkpoint, file);
  if (!checkpoint) {
    throw ConfigError("--checkpoint: want the folder of a run or a checkpoint");
  }
  return ExportModel(invocation, *checkpoint, file);
}

}  // namespace

Program ExportProgram() {
  const auto options = std::make_shared<ExportOptions>();
  return {
      .name = "export",
      .about =
          "Writes the model of a checkpoint, or the training step of a "
          "configuration, for other programs.",
      .add_options =
          [options](config::CommandLine& command_line) {
            command_line.AddConfigOption(
                kCheckpointOption, &options->checkpoint,
                "folder of a run, whose newest checkpoint is written, or of "
                "one checkpoint; the run's configuration applies",
                [](const std::string& given) {
                  return FindRun(kCheckpointOption, given) / "config.yaml";
                });
            command_line.AddOption(WhichOption::kName, &options->which,
                                   WhichOption::kHelp);
            command_line.AddOption(
                "--to", &options->file,
                "file to write: of the model .safetensors with PyTorch's "
                "names, or .onnx; of the training step .mlir, a StableHLO "
                "module for all replicas of the configuration, with its "
                "arguments in FILE.mlir.json and the values of variables in "
                "FILE.mlir.safetensors; for that --checkpoint may be left "
                "out");
          },
      .run =
          [options](const Invocation& invocation) {
            return Export(invocation, *options);
          }};
}

}  // namespace replicant::programs
