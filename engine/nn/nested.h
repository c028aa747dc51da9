#pragma once

#include <array>
#include <concepts>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/graph/graph.h"

// Structures of Outputs, for calls that take all of their tensors at once.
//
// A structure is an Output; a vector, array, optional, pair or tuple of
// structures, a map whose values are structures; or a struct that names its
// members:
//
//   struct Score {
//     Output loss;
//     std::map<std::string, std::vector<Output>> by_layer;
//
//     void ForEachMember(const auto& visit) { visit(loss), visit(by_layer); }
//   };
namespace replicant::nn {

// Calls visit(Output&) for each Output of the structure, always in the same
// order: element order, and key order for a map.
template <typename T, typename Visit>
void ForEachOutput(T& structure, const Visit& visit) {
  const auto visit_member = [&](auto& member) { ForEachOutput(member, visit); };
  if constexpr (std::same_as<T, graph::Output>) {
    visit(structure);
  } else if constexpr (requires { structure.ForEachMember(visit_member); }) {
    structure.ForEachMember(visit_member);
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (auto& [key, member] : structure) visit_member(member);
  } else if constexpr (requires { structure.has_value(); }) {
    if (structure.has_value()) visit_member(*structure);
  } else if constexpr (requires { structure.begin(); }) {
    for (auto& member : structure) visit_member(member);
  } else {
    std::apply([&](auto&... members) { (visit_member(members), ...); },
               structure);
  }
}

// A structure of Outputs other than a list.
template <typename T>
concept NestedOutputs = !std::convertible_to<T, graph::Output> &&
                        !std::convertible_to<T, std::vector<graph::Output>> &&
                        requires(T structure) {
  ForEachOutput(structure, [](graph::Output&) {});
};

// Replaces all Outputs of the structure, in order, by the results of fn.
template <typename T, typename Fn>
T MapOutputs(T structure, const Fn& fn) {
  std::vector<graph::Output> outputs;
  ForEachOutput(structure,
                [&](graph::Output& output) { outputs.push_back(output); });
  const std::vector<graph::Output> mapped = fn(outputs);
  size_t next = 0;
  ForEachOutput(structure,
                [&](graph::Output& output) { output = mapped[next++]; });
  return structure;
}

}  // namespace replicant::nn
