#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/shared_library.h"
#include "engine/kernels/cuda/convolution_library.h"
#include "engine/kernels/cuda/cudnn_graph.h"
#include "engine/kernels/cuda/driver.h"

// cuDNN's graph interface: descriptors of tensors and of operations make an
// operation graph, heuristics list engine configurations for it, the best
// first, and one of them becomes an execution plan.
namespace replicant::kernels::cuda {
namespace {

using cudnn::Descriptor;
using cudnn::Functions;
using cudnn::Target;

// Workspace that a plan may take.
constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

// Engine configurations for a graph, the best first.
std::vector<Descriptor> FindEngines(const Functions& f, const Target& target,
                                    const Descriptor& graph) {
  Descriptor heuristics(f, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
                 std::vector{CUDNN_HEUR_MODE_A});
  if (target.properties != nullptr) {
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  }
  heuristics.Finalize("engine heuristics");
  int64_t count = 0;
  f.Check(f.get_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
          "cudnnBackendGetAttribute(number of engines)");
  std::vector<Descriptor> engines;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) {
    engines.emplace_back(f, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(engines.back().get());
  }
  int64_t num_found = 0;
  f.Check(f.get_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &num_found,
                          handles.data()),
          "cudnnBackendGetAttribute(engines)");
  while (std::ssize(engines) > num_found) engines.pop_back();
  return engines;
}

// The engine of a configuration.
Descriptor EngineOf(const Functions& f, const Descriptor& config) {
  Descriptor engine(f, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  int64_t count = 0;
  f.Check(f.get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
          "cudnnBackendGetAttribute(engine)");
  return engine;
}

int64_t NumberOf(const Functions& f, const Descriptor& engine) {
  int64_t number = -1;
  int64_t count = 0;
  f.Check(f.get_attribute(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                          CUDNN_TYPE_INT64, 1, &count, &number),
          "cudnnBackendGetAttribute(engine number)");
  return number;
}

// An engine's statements about its numbers.
struct EngineNotes {
  // Operands of f32 are rounded: tensor cores take TF32, and an engine that
  // converts its inputs takes even less.
  bool rounds_f32 = false;
  // Two runs on the same operands may differ.
  bool is_random = false;
};

EngineNotes NotesOf(const Functions& f, const Descriptor& engine) {
  int64_t count = 0;
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT>
      notes{};
  f.Check(
      f.get_attribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                      CUDNN_TYPE_NUMERICAL_NOTE,
                      static_cast<int64_t>(notes.size()), &count, notes.data()),
      "cudnnBackendGetAttribute(numerical notes)");
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.begin() + count, note) !=
           notes.begin() + count;
  };
  return {.rounds_f32 = has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
                        has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS),
          .is_random = has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)};
}

// The settings of an engine configuration: "knob type" and its value each, in
// the order of types.
std::map<int64_t, int64_t> KnobsOf(const Functions& f,
                                   const Descriptor& config) {
  std::vector<Descriptor> choices;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    choices.emplace_back(f, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    handles.push_back(choices.back().get());
  }
  int64_t num_choices = 0;
  f.Check(f.get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(handles),
                          &num_choices, handles.data()),
          "cudnnBackendGetAttribute(knobs)");
  std::map<int64_t, int64_t> knobs;
  for (int64_t i = 0; i < num_choices; ++i) {
    const Descriptor& choice = choices[static_cast<size_t>(i)];
    cudnnBackendKnobType_t type{};
    int64_t value = 0;
    int64_t count = 0;
    f.Check(f.get_attribute(choice.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                            CUDNN_TYPE_KNOB_TYPE, 1, &count, &type),
            "cudnnBackendGetAttribute(knob)");
    f.Check(f.get_attribute(choice.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                            CUDNN_TYPE_INT64, 1, &count, &value),
            "cudnnBackendGetAttribute(value of a knob)");
    knobs[type] = value;
  }
  return knobs;
}

// "engine 62 knobs 2=10 14=3": everything that distinguishes a configuration.
std::string NameOf(const Functions& f, const Descriptor& config,
                   const Descriptor& engine) {
  std::string name = fmt::format("engine {}", NumberOf(f, engine));
  const char* separator = " knobs ";
  for (const auto& [type, value] : KnobsOf(f, config)) {
    name += fmt::format("{}{}={}", separator, type, value);
    separator = " ";
  }
  return name;
}

int64_t WorkspaceOf(const Functions& f, const Descriptor& plan) {
  int64_t size_bytes = 0;
  int64_t count = 0;
  f.Check(f.get_attribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                          CUDNN_TYPE_INT64, 1, &count, &size_bytes),
          "cudnnBackendGetAttribute(workspace)");
  return size_bytes;
}

struct ChosenPlan {
  Descriptor plan;
  std::string name;
  ConvolutionChoice choice;
};

// The execution plan of a configuration; nullopt if the device does not support
// it, or not within the workspace.
std::optional<Descriptor> TryMakePlan(const Functions& f, const Target& target,
                                      const Descriptor& config) {
  Descriptor plan(f, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target.handle != nullptr) {
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
             std::vector{target.handle});
  } else {
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
  }
  plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (plan.TryFinalize() != CUDNN_STATUS_SUCCESS ||
      WorkspaceOf(f, plan) > kMaxWorkspaceBytes) {
    return std::nullopt;
  }
  return plan;
}

// Which configurations become plans.
struct PlanFilter {
  int max = 1;
  // Whether the engine's results may differ from run to run.
  bool is_random = false;
  std::function<bool(const std::string& name)> wants;
};

// Execution plans of the configurations that the problem may take, the best
// first, with different names. Making one may compile code, which takes a
// while.
std::vector<ChosenPlan> MakePlans(const Functions& f, const Target& target,
                                  const ConvolutionProblem& p,
                                  const std::vector<Descriptor>& configs,
                                  const PlanFilter& filter) {
  std::vector<ChosenPlan> plans;
  std::set<std::string> names;
  for (const Descriptor& config : configs) {
    if (std::ssize(plans) == filter.max) break;
    const Descriptor engine = EngineOf(f, config);
    const EngineNotes notes = NotesOf(f, engine);
    if (notes.is_random != filter.is_random ||
        (p.dtype == DType::kF32 && !p.allows_tf32 && notes.rounds_f32)) {
      continue;
    }
    const std::string name = NameOf(f, config, engine);
    if (!filter.wants(name) || !names.insert(name).second) continue;
    std::optional<Descriptor> plan = TryMakePlan(f, target, config);
    if (!plan) continue;
    plans.push_back({.plan = *std::move(plan),
                     .name = name,
                     .choice = {.engine = NumberOf(f, engine),
                                .num_candidates = std::ssize(configs),
                                .rounds_f32 = notes.rounds_f32}});
  }
  return plans;
}

// The plans for a problem. Engines whose results may differ from run to run are
// taken only if there is no other.
std::vector<ChosenPlan> MakePlans(
    const Functions& f, const Target& target, const ConvolutionProblem& p,
    int max, const std::function<bool(const std::string& name)>& wants) {
  const Descriptor graph = cudnn::MakeConvolutionGraph(f, target, p);
  const std::vector<Descriptor> configs = FindEngines(f, target, graph);
  PlanFilter filter{.max = max, .is_random = false, .wants = wants};
  std::vector<ChosenPlan> plans = MakePlans(f, target, p, configs, filter);
  if (!plans.empty()) return plans;
  filter.is_random = true;
  return MakePlans(f, target, p, configs, filter);
}

// The library and the state that its plans share.
class Cudnn {
 public:
  explicit Cudnn(const std::string& device_properties)
      : library_(fmt::format("libcudnn.so.{}", CUDNN_MAJOR),
                 "install cuDNN, and name its folder in LD_LIBRARY_PATH"),
        f_(library_) {
    if (device_properties.empty()) {
      f_.Check(f_.create(&target_.handle), "cudnnCreate");
      return;
    }
    properties_.emplace_back(f_, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties_[0].Set(
        CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        std::vector(device_properties.begin(), device_properties.end()));
    properties_[0].Finalize("device properties");
    target_.properties = properties_.data();
  }
  ~Cudnn() {
    if (target_.handle != nullptr) f_.destroy(target_.handle);
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  const Functions& functions() const { return f_; }
  const Target& target() const { return target_; }
  // Held while a launch uses the handle.
  Mutex& launch_mutex() const { return launch_mutex_; }

 private:
  const SharedLibrary library_;
  const Functions f_;
  mutable Mutex launch_mutex_;
  std::vector<Descriptor> properties_;  // one, or none
  Target target_;
};

class CudnnPlan : public ConvolutionPlan {
 public:
  CudnnPlan(std::shared_ptr<const Cudnn> cudnn, ChosenPlan chosen,
            bool has_bias)
      : cudnn_(std::move(cudnn)),
        has_bias_(has_bias),
        name_(std::move(chosen.name)),
        choice_(chosen.choice),
        plan_(std::move(chosen.plan)),
        workspace_size_bytes_(WorkspaceOf(cudnn_->functions(), plan_)) {}

  size_t workspace_size_bytes() const override {
    return static_cast<size_t>(workspace_size_bytes_);
  }
  std::string name() const override { return name_; }
  ConvolutionChoice choice() const override { return choice_; }

  void Launch(const ConvolutionOperands& operands, CUstream stream) override {
    const Functions& f = cudnn_->functions();
    const cudnnHandle_t handle = cudnn_->target().handle;
    if (handle == nullptr) {
      throw DeviceError("a plan for described device properties cannot run");
    }
    std::vector<int64_t> ids = {cudnn::kX, cudnn::kW, cudnn::kY};
    std::vector<void*> pointers = {PointerOf(operands.x), PointerOf(operands.w),
                                   PointerOf(operands.y)};
    if (has_bias_) {
      ids.push_back(cudnn::kBias);
      pointers.push_back(PointerOf(operands.bias));
    }
    Descriptor pack(f, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             pointers);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
             std::vector{PointerOf(operands.workspace)});
    pack.Finalize("variant pack");
    // devices of a replica share the handle, and with it its stream
    const MutexLock lock(cudnn_->launch_mutex());
    f.Check(f.set_stream(handle, stream), "cudnnSetStream");
    f.Check(f.execute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  const std::shared_ptr<const Cudnn> cudnn_;
  const bool has_bias_;
  const std::string name_;
  const ConvolutionChoice choice_;
  const Descriptor plan_;
  const int64_t workspace_size_bytes_;
};

class CudnnLibrary : public ConvolutionLibrary {
 public:
  explicit CudnnLibrary(std::string device_properties)
      : device_properties_(std::move(device_properties)) {}

  std::unique_ptr<ConvolutionPlan> Plan(
      const ConvolutionProblem& problem) override {
    return First(MakeAll(problem, /*max=*/1, [](const auto&) { return true; }));
  }
  std::vector<std::unique_ptr<ConvolutionPlan>> Candidates(
      const ConvolutionProblem& problem, int max) override {
    return MakeAll(problem, max, [](const auto&) { return true; });
  }
  std::unique_ptr<ConvolutionPlan> PlanNamed(const ConvolutionProblem& problem,
                                             const std::string& name) override {
    return First(MakeAll(problem, /*max=*/1,
                         [&](const auto& other) { return other == name; }));
  }
  std::string version() override {
    const MutexLock lock(mutex_);
    Load();
    const size_t number = cudnn_->functions().version();
    return fmt::format("cuDNN {}.{}.{}", number / 10000, number / 100 % 100,
                       number % 100);
  }

 private:
  std::vector<std::unique_ptr<ConvolutionPlan>> MakeAll(
      const ConvolutionProblem& problem, int max,
      const std::function<bool(const std::string& name)>& wants)
      EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    Load();
    std::vector<std::unique_ptr<ConvolutionPlan>> plans;
    for (ChosenPlan& plan : MakePlans(cudnn_->functions(), cudnn_->target(),
                                      problem, max, wants)) {
      plans.push_back(std::make_unique<CudnnPlan>(cudnn_, std::move(plan),
                                                  problem.has_bias));
    }
    return plans;
  }
  static std::unique_ptr<ConvolutionPlan> First(
      std::vector<std::unique_ptr<ConvolutionPlan>> plans) {
    return plans.empty() ? nullptr : std::move(plans[0]);
  }
  void Load() REQUIRES(mutex_) {
    if (cudnn_ != nullptr) return;
    cudnn_ = std::make_shared<const Cudnn>(device_properties_);
  }

  const std::string device_properties_;
  Mutex mutex_;
  std::shared_ptr<const Cudnn> cudnn_ GUARDED_BY(mutex_);
};

}  // namespace

std::vector<std::unique_ptr<ConvolutionPlan>> ConvolutionLibrary::Candidates(
    const ConvolutionProblem& problem, int /*max*/) {
  std::vector<std::unique_ptr<ConvolutionPlan>> plans;
  if (auto plan = Plan(problem)) plans.push_back(std::move(plan));
  return plans;
}

std::unique_ptr<ConvolutionPlan> ConvolutionLibrary::PlanNamed(
    const ConvolutionProblem& problem, const std::string& name) {
  auto plan = Plan(problem);
  return plan != nullptr && plan->name() == name ? std::move(plan) : nullptr;
}

std::unique_ptr<ConvolutionLibrary> MakeCudnn(std::string device_properties) {
  return std::make_unique<CudnnLibrary>(std::move(device_properties));
}

}  // namespace replicant::kernels::cuda
