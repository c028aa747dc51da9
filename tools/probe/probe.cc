#include "tools/probe/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "base/tensor/convert.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/numeric_check.h"
#include "engine/runtime/variable_store.h"

namespace replicant::probe {
namespace {

constexpr std::string_view kVariables = "variables/";
constexpr std::string_view kBatches = "batches/";

// "critic/head/0/weight" as PyTorch writes it.
std::string Dotted(std::string name) {
  std::ranges::replace(name, '/', '.');
  return name;
}

// An element of a floating tensor as text; NaN has no sign there.
std::string ElementText(TensorView tensor, int64_t element) {
  const double value = ConvertFloating(tensor, DType::kF64)
                           .Span<double>()[static_cast<size_t>(element)];
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

void CopyInto(MutableTensorView to, TensorView from) {
  std::memcpy(to.data(), from.data(), from.size_bytes());
}

// The input file, each tensor checked against the workload.
class ProbeInput {
 public:
  ProbeInput(const SafetensorsReader& reader, std::string where)
      : reader_(reader), where_(std::move(where)) {}

  [[noreturn]] void Fail(const std::string& message) const {
    throw IoError(fmt::format("{}: {}", where_, message));
  }

  [[noreturn]] void FailAsNumber(const std::string& message) const {
    throw runtime::NumericError(fmt::format("{}: {}", where_, message));
  }

  bool Has(std::string_view prefix, const std::string& name) const {
    return reader_.Has(fmt::format("{}{}", prefix, name));
  }

  // Every tensor must be one of these.
  void CheckNames(const std::vector<std::string>& variables,
                  const std::vector<std::string>& inputs) const {
    std::vector<std::string> known;
    known.reserve(variables.size() + inputs.size());
    for (const std::string& name : variables) {
      known.push_back(fmt::format("{}{}", kVariables, name));
    }
    for (const std::string& name : inputs) {
      known.push_back(fmt::format("{}{}", kBatches, name));
    }
    for (const SafetensorsInfo& info : reader_.tensors()) {
      if (std::ranges::find(known, info.name) != known.end()) continue;
      const std::string nearest = NearestName(info.name, known);
      Fail(fmt::format(
          "tensor '{}' is not one of the workload; want "
          "variables/NAME and batches/NAME{}",
          info.name,
          nearest.empty() ? std::string()
                          : fmt::format(", did you mean '{}'?", nearest)));
    }
  }

  // A tensor of this type; floating ones are converted. A leading dimension of
  // -1 takes any.
  HostTensor Read(std::string_view prefix, const std::string& name, DType dtype,
                  const std::vector<int64_t>& dims) const {
    const std::string full = fmt::format("{}{}", prefix, name);
    HostTensor tensor = reader_.Read(full);
    std::vector<int64_t> wanted = dims;
    const auto given = tensor.shape().dims();
    if (!wanted.empty() && wanted[0] == -1 && !given.empty() && given[0] > 0) {
      wanted[0] = given[0];
    }
    const bool can_convert =
        graph::IsFloating(dtype) && graph::IsFloating(tensor.dtype());
    if (!std::ranges::equal(wanted, given) ||
        (tensor.dtype() != dtype && !can_convert)) {
      Fail(fmt::format("'{}' is {}{}, want {}[{}]", full,
                       DTypeName(tensor.dtype()), tensor.shape().ToString(),
                       DTypeName(dtype), DescribeDims(dims)));
    }
    if (tensor.dtype() == dtype) return tensor;
    return ConvertFloating(tensor.view(), dtype);
  }

 private:
  static std::string DescribeDims(const std::vector<int64_t>& dims) {
    std::vector<std::string> texts;
    texts.reserve(dims.size());
    for (const int64_t dim : dims) {
      texts.push_back(dim == -1 ? "N" : std::to_string(dim));
    }
    return fmt::format("{}", fmt::join(texts, ","));
  }

  const SafetensorsReader& reader_;
  std::string where_;
};

class Probe {
 public:
  Probe(const StepGraph& workload, kernels::Backend& backend,
        const ProbeOptions& options)
      : workload_(workload),
        options_(options),
        store_(backend, workload.graph->seed()),
        plan_(*workload.graph, MakeSpec(workload), store_,
              {.passes = {.precision = options.precision},
               .check_finite = options.check_finite}) {}

  ProbeResult Run(const ProbeInput& input) {
    Load(input);
    for (step_ = 0; step_ < options_.steps; ++step_) {
      SetInputs(input);
      plan_.Run();
      Record();
    }
    for (const auto& [name, variable] : store_.variables()) {
      HostTensor value = store_.Get(name);
      CheckResult("variable", Dotted(name), value.view(), step_ - 1);
      result_.emplace(fmt::format("{}{}", kVariables, Dotted(name)),
                      std::move(value));
    }
    return std::move(result_);
  }

 private:
  // Losses, then outputs, then gradients.
  static runtime::PlanSpec MakeSpec(const StepGraph& workload) {
    runtime::PlanSpec spec{.updates = workload.updates};
    for (const auto* list :
         {&workload.losses, &workload.outputs, &workload.gradients}) {
      for (const NamedOutput& named : *list) {
        spec.outputs.push_back(named.output);
      }
    }
    return spec;
  }

  void Load(const ProbeInput& input) {
    std::vector<std::string> variables;
    for (const auto& [name, variable] : store_.variables()) {
      variables.push_back(Dotted(name));
    }
    input.CheckNames(variables, plan_.input_names());
    if (workload_.start_graph) {
      runtime::Executor start(*workload_.start_graph,
                              {.updates = workload_.start_updates}, store_);
      // targets that the file lacks are copies of the networks in it
      LoadVariables(input);
      start.Run();
    }
    LoadVariables(input);
    CheckTrained(input);
    for (const std::string& name : plan_.input_names())
      LoadBatches(input, name);
  }

  void LoadVariables(const ProbeInput& input) {
    for (const auto& [name, variable] : store_.variables()) {
      const std::string dotted = Dotted(name);
      if (!input.Has(kVariables, dotted)) continue;
      const auto dims = variable.spec.shape.dims();
      const HostTensor value = input.Read(
          kVariables, dotted, variable.spec.dtype, {dims.begin(), dims.end()});
      if (const auto element = runtime::FindNotFinite(value.view())) {
        input.FailAsNumber(fmt::format("'{}{}': element {} is {}", kVariables,
                                       dotted, *element,
                                       ElementText(value.view(), *element)));
      }
      store_.Set(name, value.view());
    }
  }

  // Variables with a gradient must be given: a probe from random values would
  // show nothing.
  void CheckTrained(const ProbeInput& input) const {
    for (const NamedOutput& gradient : workload_.gradients) {
      const std::string name = Dotted(gradient.name);
      if (!input.Has(kVariables, name)) {
        input.Fail(fmt::format("no tensor '{}{}'", kVariables, name));
      }
    }
  }

  void LoadBatches(const ProbeInput& input, const std::string& name) {
    if (!input.Has(kBatches, name)) {
      input.Fail(fmt::format("no tensor '{}{}'", kBatches, name));
    }
    const MutableTensorView view = plan_.input(name);
    std::vector<int64_t> dims = {-1};
    dims.insert(dims.end(), view.shape().dims().begin(),
                view.shape().dims().end());
    HostTensor batches = input.Read(kBatches, name, view.dtype(), dims);
    const int64_t count = batches.shape()[0];
    if (!batches_.empty() && count != num_batches_) {
      input.Fail(fmt::format("'{}{}' has {} batches, '{}{}' has {}", kBatches,
                             name, count, kBatches, batches_.begin()->first,
                             num_batches_));
    }
    num_batches_ = count;
    batches_.emplace(name, std::move(batches));
  }

  // Checks the batch of this step and gives it to the plan.
  void SetInputs(const ProbeInput& input) {
    const int64_t batch = step_ % num_batches_;
    for (auto& [name, batches] : batches_) {
      const auto classes = workload_.num_classes.find(name);
      try {
        runtime::CheckBatchTensor(
            batch, name, batches.view()[batch],
            classes == workload_.num_classes.end() ? 0 : classes->second);
      } catch (const runtime::NumericError& error) {
        input.FailAsNumber(fmt::format("step {}: {}", step_, error.what()));
      }
      CopyInto(plan_.input(name), batches.view()[batch]);
    }
  }

  // Copies the results of the step.
  void Record() {
    size_t next = 0;
    const auto take = [&](const char* kind, const std::string& name) {
      const TensorView value = plan_.output(next++);
      CheckResult(kind, name, value, step_);
      return value;
    };
    for (const NamedOutput& loss : workload_.losses) {
      Append("losses/" + loss.name, take("loss", loss.name));
    }
    for (const NamedOutput& output : workload_.outputs) {
      Append("steps/" + output.name, take("output", output.name));
    }
    if (step_ > 0) return;
    for (const NamedOutput& gradient : workload_.gradients) {
      const std::string name = Dotted(gradient.name);
      result_.emplace("gradients/" + name,
                      HostTensor::Clone(take("gradient", name)));
    }
  }

  // Throws NumericError for a result of `step` that is not finite.
  static void CheckResult(const char* kind, const std::string& name,
                          TensorView value, int64_t step) {
    const std::optional<int64_t> element = runtime::FindNotFinite(value);
    if (!element) return;
    throw runtime::NumericError(fmt::format(
        "{} '{}'{} is {} at step {}; hint: debug mode (--check_finite) names "
        "the first op that produced such a value",
        kind, name,
        value.shape().rank() == 0 ? std::string()
                                  : fmt::format(", element {},", *element),
        ElementText(value, *element), step));
  }

  // Sets row `step_` of a result of one row per step.
  void Append(const std::string& name, TensorView value) {
    auto found = result_.find(name);
    if (found == result_.end()) {
      std::vector<int64_t> dims = {options_.steps};
      dims.insert(dims.end(), value.shape().dims().begin(),
                  value.shape().dims().end());
      found =
          result_
              .emplace(name, HostTensor(value.dtype(),
                                        Shape(std::span<const int64_t>(dims))))
              .first;
    }
    CopyInto(found->second.mutable_view()[step_], value);
  }

  const StepGraph& workload_;
  ProbeOptions options_;
  runtime::VariableStore store_;
  runtime::Executor plan_;
  std::map<std::string, HostTensor> batches_;
  int64_t num_batches_ = 0;
  int64_t step_ = 0;
  ProbeResult result_;
};

}  // namespace

ProbeResult RunProbe(const StepGraph& workload, kernels::Backend& backend,
                     const SafetensorsReader& input, const std::string& where,
                     const ProbeOptions& options) {
  return Probe(workload, backend, options).Run(ProbeInput(input, where));
}

}  // namespace replicant::probe
