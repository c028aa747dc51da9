#include "programs/plan/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

namespace replicant::programs {
namespace {

using kernels::LaunchDescription;
using Kind = kernels::LaunchDescription::Kind;
using Unit = kernels::LaunchDescription::Unit;

constexpr size_t kNumSlowest = 10;

double PeakOf(Unit unit, const DeviceRates& device) {
  switch (unit) {
    case Unit::kBF16:
      return device.bf16_flops_per_s;
    case Unit::kTF32:
      return device.tf32_flops_per_s;
    case Unit::kF32:
      break;
  }
  return device.f32_flops_per_s;
}

double BytesOf(const runtime::PlannedKernel& kernel) {
  const kernels::KernelDescription& d = kernel.description;
  // a kernel without launches is an output in its input's place
  if (d.launches.empty()) return 0.0;
  return static_cast<double>(d.operand_bytes) +
         2.0 * static_cast<double>(d.scratch_bytes);
}

double SecondsOf(const runtime::PlannedKernel& kernel,
                 const DeviceRates& device) {
  double seconds = 0.0;
  for (const LaunchDescription& launch : kernel.description.launches) {
    seconds += launch.flops / PeakOf(launch.unit, device);
  }
  return std::max(seconds, BytesOf(kernel) / device.bytes_per_s);
}

std::string KernelText(const runtime::PlannedKernel& kernel,
                       const DeviceRates& device) {
  std::string launches;
  double flops = 0.0;
  for (const LaunchDescription& launch : kernel.description.launches) {
    launches += (launches.empty() ? "" : ", ") + launch.name;
    flops += launch.flops;
  }
  return fmt::format("  {:9.2f} us {:9.2f} MB {:9.3f} GFLOP  {} '{}': {}\n",
                     1e6 * SecondsOf(kernel, device), 1e-6 * BytesOf(kernel),
                     1e-9 * flops, kernel.op, kernel.name, launches);
}

}  // namespace

PlanTotals TotalsOf(const runtime::PlanReport& report,
                    const DeviceRates& device) {
  PlanTotals totals;
  for (const runtime::PlannedKernel& kernel : report.kernels) {
    totals.bytes += BytesOf(kernel);
    totals.reread_bytes += static_cast<double>(kernel.description.reread_bytes);
    totals.seconds += SecondsOf(kernel, device);
    for (const LaunchDescription& launch : kernel.description.launches) {
      switch (launch.kind) {
        case Kind::kLibrary:
          ++totals.num_library_calls;
          totals.product_flops += launch.flops;
          break;
        case Kind::kOwnKernel:
          ++totals.num_own_kernels;
          break;
        case Kind::kGenerated:
          ++totals.num_generated;
          totals.other_flops += launch.flops;
          break;
        case Kind::kCopy:
          ++totals.num_copies;
          break;
      }
    }
  }
  return totals;
}

std::string PlanText(const replicator::StepPlan& plan, bool lists_all,
                     const DeviceRates& device) {
  const runtime::PlanReport& report = plan.report;
  const PlanTotals totals = TotalsOf(report, device);
  const auto least = static_cast<double>(report.least_bytes);
  const std::string resident =
      report.resident_size_bytes == 0
          ? ""
          : fmt::format(", resident inputs {:.1f} MB",
                        1e-6 * static_cast<double>(report.resident_size_bytes));
  std::string text = fmt::format(
      "{}\n"
      "launches  {}: {} library calls, {} own kernels, {} generated kernels, "
      "{} copies\n"
      "bytes     {:.1f} MB, {:.1f} MB read again; {:.1f} MB at least (inputs, "
      "outputs, variables)\n"
      "FLOPs     {:.2f} G in library calls, {:.3f} G in generated kernels\n"
      "memory    {:.1f} MB: tensors {:.1f}, scratch {:.1f}, constants {:.1f}, "
      "inputs and outputs {:.1f}; variables {:.1f} MB{}\n"
      "time      {:.3f} ms at least on an {}; {:.3f} ms for the least "
      "bytes\n",
      plan.name, totals.num_launches(), totals.num_library_calls,
      totals.num_own_kernels, totals.num_generated, totals.num_copies,
      1e-6 * totals.bytes, 1e-6 * totals.reread_bytes, 1e-6 * least,
      1e-9 * totals.product_flops, 1e-9 * totals.other_flops,
      1e-6 * static_cast<double>(report.peak_size_bytes()),
      1e-6 * static_cast<double>(report.memory.arena_size_bytes),
      1e-6 * static_cast<double>(report.scratch_size_bytes),
      1e-6 * static_cast<double>(report.constant_size_bytes),
      1e-6 * static_cast<double>(report.boundary_size_bytes),
      1e-6 * static_cast<double>(report.variable_size_bytes), resident,
      1e3 * totals.seconds, device.name, 1e3 * least / device.bytes_per_s);
  text += "largest tensors\n";
  for (const runtime::PlannedTensor& tensor : report.largest_tensors) {
    text += fmt::format("  {:9.2f} MB  {} {}\n",
                        1e-6 * static_cast<double>(tensor.size_bytes),
                        tensor.name, tensor.type.ToString());
  }
  std::vector<runtime::PlannedKernel> kernels = report.kernels;
  if (lists_all) {
    text += "kernels, in the order of launches\n";
  } else {
    text += "slowest kernels\n";
    std::ranges::stable_sort(
        kernels, std::ranges::greater(),
        [&](const auto& kernel) { return SecondsOf(kernel, device); });
    if (kernels.size() > kNumSlowest) {
      kernels.erase(kernels.begin() + kNumSlowest, kernels.end());
    }
  }
  for (const runtime::PlannedKernel& kernel : kernels) {
    text += KernelText(kernel, device);
  }
  return text;
}

}  // namespace replicant::programs
