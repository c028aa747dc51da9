// Runs a workload on variables and batches from a file and writes the results:
// docs/workload_probe.md.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/config/command_line.h"
#include "base/error.h"
#include "base/tensor/safetensors.h"
#include "engine/kernels/backend.h"
#include "fleet/version.h"
#include "tools/probe/probe.h"
#include "tools/probe/workloads.h"

namespace replicant::probe {
namespace {

struct Options {
  std::string workload = "d4pg";
  std::string input;
  std::string output;
  std::string steps = "1";
  std::string backend = "reference";
  std::string threads = "1";
  std::string dtype = "f32";
  std::string precision = "f32";
  bool check_finite = false;
};

int64_t PositiveInteger(const std::string& name, const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 1 || value > 1'000'000) {
    throw ConfigError(fmt::format(
        "--{} {}: want a whole number in [1, 1000000]", name, text));
  }
  return value;
}

const std::map<std::string, graph::Precision>& Precisions() {
  static const std::map<std::string, graph::Precision> precisions = {
      {"f32", graph::Precision::kF32},
      {"tf32", graph::Precision::kTF32},
      {"bf16", graph::Precision::kBF16}};
  return precisions;
}

void CheckOptions(const Options& options) {
  if (options.dtype != "f32" && options.dtype != "f64") {
    throw ConfigError(
        fmt::format("--dtype {}: want one of f32, f64", options.dtype));
  }
  if (!Precisions().contains(options.precision)) {
    throw ConfigError(fmt::format("--precision {}: want one of f32, tf32, bf16",
                                  options.precision));
  }
  if (options.precision != "f32" && options.dtype != "f32") {
    throw ConfigError(fmt::format("--precision {}: want --dtype f32, got {}",
                                  options.precision, options.dtype));
  }
  if (options.input.empty()) throw ConfigError("--input FILE is missing");
  if (options.output.empty()) throw ConfigError("--output FILE is missing");
}

void Run(const Options& options, const config::Arguments& arguments) {
  CheckOptions(options);
  const ProbedWorkload::Built loaded =
      FindProbedWorkload(options.workload, "--workload")
          .build(config::Document::FromFile(arguments.config_file,
                                            arguments.overrides),
                 *ParseDType(options.dtype));
  const auto backend = kernels::MakeBackend(
      options.backend, {.num_threads = static_cast<int>(
                            PositiveInteger("threads", options.threads))});
  const ProbeResult result = RunProbe(
      loaded.step, *backend, SafetensorsReader(options.input), options.input,
      {.steps = PositiveInteger("steps", options.steps),
       .precision = Precisions().at(options.precision),
       .check_finite = options.check_finite});
  std::vector<NamedTensorView> tensors;
  for (const auto& [name, tensor] : result) {
    tensors.push_back({name, tensor.view()});
  }
  WriteSafetensors(options.output, tensors,
                   {{"workload", options.workload},
                    {"backend", backend->device()},
                    {"config", loaded.resolved_yaml}});
}

int Main(int argc, char** argv) {
  config::CommandLine command_line("workload_probe",
                                   "Runs training steps of a workload on "
                                   "variables and batches from a file.");
  Options options;
  command_line.AddOption("--workload", &options.workload,
                         "which one: " + ProbedWorkloadNames());
  command_line.AddOption("--input", &options.input,
                         "safetensors file with variables and batches");
  command_line.AddOption("--output", &options.output,
                         "safetensors file to write: losses, gradients of the "
                         "first step, variables");
  command_line.AddOption("--steps", &options.steps, "number of steps");
  command_line.AddOption("--backend", &options.backend, "what computes");
  command_line.AddOption("--threads", &options.threads,
                         "threads of the backend");
  command_line.AddOption("--dtype", &options.dtype,
                         "dtype of variables and computation: f32 or f64");
  command_line.AddOption(
      "--precision", &options.precision,
      "precision of products and stored tensors: f32, tf32 or bf16");
  command_line.AddFlag("--check_finite", &options.check_finite,
                       "name the first op that makes NaN or infinity (slow)");
  command_line.AddVersion(fleet::Version());
  config::Arguments arguments =
      command_line.Parse(argc, argv, ProbedWorkloads()[0].describe());
  if (!arguments.text_to_print.empty()) {
    // the manual describes the requested workload
    arguments = command_line.Parse(
        argc, argv,
        FindProbedWorkload(options.workload, "--workload").describe());
  }
  if (!arguments.text_to_print.empty()) {
    std::fputs(arguments.text_to_print.c_str(), stdout);
    return 0;
  }
  Run(options, arguments);
  return 0;
}

}  // namespace
}  // namespace replicant::probe

int main(int argc, char** argv) {
  try {
    return replicant::probe::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "workload_probe: {}\n", e.what());
    return 1;
  }
}
