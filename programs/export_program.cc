#include "programs/export_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/export/onnx.h"
#include "core/runtime/checkpoint.h"
#include "learner/workloads/model_file.h"
#include "programs/find_checkpoint.h"
#include "programs/make_workload.h"

namespace replicant::programs {
namespace {

constexpr const char* kCheckpoint = "--checkpoint";
// Rows of the graph that becomes a model of any number of rows: no layer has
// this size.
constexpr int64_t kOnnxRows = 7919;

struct Options {
  std::string checkpoint;
  std::string file;
};

// What one needs to know to use the model.
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
    metadata["camera"] = config.task.pixels.camera.camera;
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

int Export(const Invocation& invocation, const Options& options) {
  const std::filesystem::path file = options.file;
  const bool is_onnx = file.extension() == ".onnx";
  if (!is_onnx && file.extension() != ".safetensors") {
    throw ConfigError(fmt::format(
        "--to: got '{}', want a file .safetensors or .onnx", options.file));
  }
  if (options.checkpoint.empty()) {
    throw ConfigError("--checkpoint: want the folder of a run or a checkpoint");
  }
  const std::filesystem::path checkpoint =
      FindCheckpoint(kCheckpoint, options.checkpoint);
  const auto workload =
      MakeWorkload(invocation, MakeOneReplica(invocation.config()),
                   /*source=*/nullptr, /*reads_images=*/false);
  const int64_t step =
      runtime::LoadCheckpoint(checkpoint, workload->variables()).step;
  fmt::print("checkpoint {}\nstep {}\n", checkpoint.string(), step);
  if (is_onnx) {
    AtomicWriteFile(file, OnnxOf(invocation, checkpoint, step, *workload));
    fmt::print("wrote {}\n", file.string());
    return 0;
  }
  learner::WriteModel(file, workload->ModelVariables(), step,
                      workload->variables());
  fmt::print("wrote {}\n", file.string());
  const std::string description = workload->ModelDescription();
  if (!description.empty()) {
    const auto beside = std::filesystem::path(file).replace_extension(".yaml");
    AtomicWriteFile(beside, description);
    fmt::print("wrote {}\n", beside.string());
  }
  return 0;
}

}  // namespace

Program ExportProgram() {
  const auto options = std::make_shared<Options>();
  return {
      .name = "export",
      .about = "Writes the model of a checkpoint for other programs.",
      .add_options =
          [options](config::CommandLine& command_line) {
            command_line.AddConfigOption(
                kCheckpoint, &options->checkpoint,
                "folder of a run, whose newest checkpoint is written, or of "
                "one checkpoint; the run's configuration applies",
                [](const std::string& given) {
                  return FindRun(kCheckpoint, given) / "config.yaml";
                });
            command_line.AddOption(
                "--to", &options->file,
                "file to write: .safetensors with PyTorch's names, or .onnx");
          },
      .run =
          [options](const Invocation& invocation) {
            return Export(invocation, *options);
          }};
}

}  // namespace replicant::programs
