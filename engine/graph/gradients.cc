#include "engine/graph/gradients.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::graph {
namespace {

// The sum of the gradients of two slices that lie side by side, as their
// concatenation; invalid for other gradients.
Output Joined(const Output& a, const Output& b) {
  const Node& x = a.producer();
  const Node& y = b.producer();
  for (const Node* const node : {&x, &y}) {
    if (node->op->name != "Pad" || node->attributes.Float("value") != 0.0) {
      return kNoGradient;
    }
  }
  if (x.device != y.device) return kNoGradient;
  std::vector<int64_t> before = x.attributes.Ints("before");
  std::vector<int64_t> after = x.attributes.Ints("after");
  const std::vector<int64_t>& y_before = y.attributes.Ints("before");
  const std::vector<int64_t>& y_after = y.attributes.Ints("after");
  size_t axis = 0;
  while (axis + 1 < before.size() && before[axis] == y_before[axis] &&
         after[axis] == y_after[axis]) {
    ++axis;
  }
  for (size_t i = axis + 1; i < before.size(); ++i) {
    if (before[i] != y_before[i] || after[i] != y_after[i]) return kNoGradient;
  }
  const int64_t size = a.shape()[static_cast<int>(axis)];
  const bool is_behind = size - after[axis] == y_before[axis];
  const bool is_in_front = size - y_after[axis] == before[axis];
  if (is_behind == is_in_front) return kNoGradient;
  (is_behind ? after : before)[axis] = (is_behind ? y_after : y_before)[axis];
  const Output first = a.graph->output(x.inputs[0]);
  const Output second = a.graph->output(y.inputs[0]);
  const auto parts =
      is_behind ? std::vector{first, second} : std::vector{second, first};
  return Pad(Concat(parts, static_cast<int64_t>(axis)), before, after);
}

// Reverse-mode differentiation. A forward walk marks the nodes between `wrt`
// and the loss. A backward walk then visits the marked nodes, last first: when
// a node is reached, all its users have been visited, so that the adjoints of
// its outputs are complete, and its gradient function gives the share of each
// input.
class Differentiator {
 public:
  Differentiator(const Output& loss, const std::vector<Output>& wrt)
      : graph_(*loss.graph), wrt_(wrt) {
    depends_.resize(static_cast<size_t>(loss.node) + 1, false);
  }

  std::vector<Output> Run(const Output& loss) {
    MarkDependents(loss.node);
    const Graph::Scope scope(graph_, "gradients");
    adjoints_[loss.endpoint()] = graph_.Scalar(1.0, loss.dtype());
    // inputs are earlier nodes: going backwards, all users of a node come
    // before the node itself
    for (NodeId id = loss.node; id >= 0; --id) {
      if (depends_[static_cast<size_t>(id)]) Propagate(id);
    }

    std::vector<Output> gradients;
    for (const Output& x : wrt_) {
      const auto found = adjoints_.find(x.endpoint());
      if (found == adjoints_.end()) {
        throw InvalidArgument(fmt::format(
            "{}: Gradients: no gradient flows from the loss '{}' to '{}'",
            graph_.site().ToString(), loss.producer().name, x.producer().name));
      }
      gradients.push_back(found->second);
    }
    return gradients;
  }

 private:
  bool IsWanted(Endpoint endpoint) const {
    for (const Output& x : wrt_) {
      if (x.endpoint() == endpoint) return true;
    }
    return false;
  }

  bool IsOnTheWay(Endpoint endpoint) const {
    return depends_[static_cast<size_t>(endpoint.node)] || IsWanted(endpoint);
  }

  // Sets depends_[n] for every node n <= last that is computed from an x in wrt
  // on a path without StopGradient.
  void MarkDependents(NodeId last) {
    for (NodeId id = 0; id <= last; ++id) {
      if (graph_.node(id).op->name == "StopGradient") continue;
      for (const Endpoint& input : graph_.node(id).inputs) {
        if (IsOnTheWay(input)) depends_[static_cast<size_t>(id)] = true;
      }
    }
  }

  // Adds the node's share of its inputs' adjoints, if one of its outputs has an
  // adjoint.
  void Propagate(NodeId id) {
    // a copy: adding nodes moves the originals
    const Node node = graph_.node(id);
    GradientContext context{.node = node};
    bool has_gradient = false;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Endpoint endpoint{id, static_cast<int32_t>(i)};
      context.outputs.push_back(graph_.output(endpoint));
      const auto found = adjoints_.find(endpoint);
      const bool has_adjoint = found != adjoints_.end();
      context.output_gradients.push_back(has_adjoint ? found->second
                                                     : kNoGradient);
      has_gradient = has_gradient || has_adjoint;
    }
    if (!has_gradient) return;
    if (node.op->gradient == nullptr) {
      throw InvalidArgument(
          fmt::format("{}: Gradients: {} '{}' ({}) has no gradient: {}; hint: "
                      "put StopGradient in front of it, if none should flow",
                      graph_.site().ToString(), node.op->name, node.name,
                      node.site.ToString(), node.op->no_gradient_reason));
    }

    for (const Endpoint& input : node.inputs) {
      context.inputs.push_back(graph_.output(input));
    }
    const Graph::SiteOverride override_site(graph_, node.site);
    const Graph::DeviceScope device(graph_, node.device);
    const Graph::Scope scope(graph_, node.name);
    const std::vector<Output> gradients = node.op->gradient(context);
    REPLICANT_CHECK(gradients.size() == node.inputs.size(),
                    "{} gives {} gradients of {} inputs", node.op->name,
                    gradients.size(), node.inputs.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].is_valid() || !IsOnTheWay(node.inputs[i])) continue;
      Accumulate(node.inputs[i], gradients[i]);
    }
  }

  // Adds `gradient` to the adjoint of the endpoint.
  void Accumulate(Endpoint endpoint, const Output& gradient) {
    REPLICANT_CHECK(gradient.type() == graph_.type(endpoint),
                    "gradient {} of {}", gradient.type().ToString(),
                    graph_.type(endpoint).ToString());
    const auto [place, is_first] = adjoints_.emplace(endpoint, gradient);
    if (is_first) return;
    const Output joined = Joined(place->second, gradient);
    place->second = joined.is_valid() ? joined : Add(place->second, gradient);
  }

  Graph& graph_;
  const std::vector<Output>& wrt_;
  std::vector<bool> depends_;
  std::map<Endpoint, Output> adjoints_;
};

}  // namespace

std::vector<Output> Gradients(Output loss, const std::vector<Output>& wrt,
                              CallSite site) {
  const Graph::SiteScope scope(loss, site);
  if (!IsFloating(loss.dtype()) || loss.shape().rank() != 0) {
    throw InvalidArgument(
        fmt::format("{}: Gradients: want a floating scalar as loss, got '{}' "
                    "of type {}; hint: apply ReduceMean or ReduceSum",
                    loss.graph->site().ToString(), loss.producer().name,
                    loss.type().ToString()));
  }
  for (const Output& x : wrt) {
    if (!IsFloating(x.dtype())) {
      throw InvalidArgument(
          fmt::format("{}: Gradients: want floating outputs to differentiate "
                      "by, got '{}' of type {}",
                      loss.graph->site().ToString(), x.producer().name,
                      x.type().ToString()));
    }
    REPLICANT_CHECK(x.graph == loss.graph, "'{}' belongs to another graph",
                    x.producer().name);
  }
  return Differentiator(loss, wrt).Run(loss);
}

}  // namespace replicant::graph
