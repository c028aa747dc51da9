#include "engine/nn/spectral_norm.h"

#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/state.h"

namespace replicant::nn {

SpectralNorm::SpectralNorm(Graph& graph, const Shape& shape,
                           const Initializer& weight, DType dtype,
                           CallSite site)
    : graph_(&graph) {
  const Graph::SiteScope scope(graph, site);
  weight_ =
      graph.AddVariable({.name = "weight_orig",
                         .dtype = dtype,
                         .shape = shape,
                         .initializer = weight ? weight : PyTorchWeight()});
  const auto add_vector = [&](const char* name, int64_t size) {
    return graph.AddVariable({.name = name,
                              .dtype = dtype,
                              .shape = Shape({size}),
                              .initializer = UnitVector(),
                              .is_trainable = false,
                              .agreement = graph::ReplicaAgreement::kFirst});
  };
  u_ = add_vector("weight_u", shape[0]);
  v_ = add_vector("weight_v", shape.WithoutLeading().num_elements());
}

Output SpectralNorm::Train(std::vector<Output>* updates, CallSite site) const {
  const Graph::SiteScope scope(*graph_, site);
  const graph::SpectralNormOutputs norm =
      graph::SpectralNorm(graph_->Read(weight_), graph_->Read(u_));
  updates->push_back(graph::Assign(*graph_, u_, norm.u));
  updates->push_back(graph::Assign(*graph_, v_, norm.v));
  return norm.y;
}

Output SpectralNorm::Infer(CallSite site) const {
  const Graph::SiteScope scope(*graph_, site);
  return graph::SpectralNormInference(graph_->Read(weight_), graph_->Read(u_),
                                      graph_->Read(v_));
}

}  // namespace replicant::nn
