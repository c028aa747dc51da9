#include "learner/workloads/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "learner/workloads/d4pg/workload_graph.h"
#include "learner/workloads/resnet50/workload_graph.h"
#include "learner/workloads/sngan/workload_graph.h"

namespace replicant::learner {
namespace {

// `build` is the BuildWorkload() of the configuration's namespace.
template <typename Config, WorkloadGraph (*build)(const Config&, DType)>
LoadedWorkload Load(config::Document document, DType dtype) {
  auto loaded = config::Load<Config>(std::move(document));
  return {build(loaded.config, dtype), std::move(loaded.resolved_yaml)};
}

template <typename Config, WorkloadGraph (*build)(const Config&, DType)>
constexpr WorkloadKind KindOf(std::string_view name) {
  return {name, &config::Describe<Config>, &Load<Config, build>};
}

constexpr std::array kWorkloads = {
    KindOf<d4pg::WorkloadConfig, &d4pg::BuildWorkload>("d4pg"),
    KindOf<resnet50::WorkloadConfig, &resnet50::BuildWorkload>("resnet50"),
    KindOf<sngan::WorkloadConfig, &sngan::BuildWorkload>("sngan")};

}  // namespace

std::span<const WorkloadKind> AllWorkloads() { return kWorkloads; }

std::string WorkloadNames() {
  std::vector<std::string_view> names;
  for (const WorkloadKind& kind : kWorkloads) names.push_back(kind.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const WorkloadKind& FindWorkload(std::string_view name,
                                 std::string_view option) {
  for (const WorkloadKind& kind : kWorkloads) {
    if (kind.name == name) return kind;
  }
  throw ConfigError(
      fmt::format("{} {}: want one of {}", option, name, WorkloadNames()));
}

}  // namespace replicant::learner
