#include "core/nn/spectral_norm.h"

#include "core/graph/ops/norm.h"
#include "core/graph/ops/state.h"

namespace replicant::nn {
SpectralNorm::SpectralNorm(Graph& graph, const Shape& shape,
                           const Initializer& weight, DType dtype,
                           CallSite site)
    : graph_(&graph),
      weight_(
          graph.AddVariable({.name = "weight_orig",
                             .dtype = dtype,
                             .shape = shape,
                             .initializer = weight ? weight : PyTorchWeight()},
                            site)),
      u_(graph.AddVariable({.name = "weight_u",
                            .dtype = dtype,
                            .shape = Shape({shape[0]}),
                            .initializer = UnitVector(),
                            .is_trainable = false,
                            .agreement = graph::ReplicaAgreement::kFirst},
                           site)),
      v_(graph.AddVariable(
          {.name = "weight_v",
           .dtype = dtype,
           .shape = Shape({shape.WithoutLeading().num_elements()}),
           .initializer = UnitVector(),
           .is_trainable = false,
           .agreement = graph::ReplicaAgreement::kFirst},
          site)) {}

Output SpectralNorm::Train(std::vector<Output>* updates, CallSite site) const {
  const graph::SpectralNormOutputs norm = graph::SpectralNorm(
      graph_->Read(weight_, site), graph_->Read(u_, site), site);
  updates->push_back(graph::Assign(*graph_, u_, norm.u, site));
  updates->push_back(graph::Assign(*graph_, v_, norm.v, site));
  return norm.y;
}

Output SpectralNorm::Infer(CallSite site) const {
  return graph::SpectralNormInference(graph_->Read(weight_, site),
                                      graph_->Read(u_, site),
                                      graph_->Read(v_, site), site);
}

}  // namespace replicant::nn
