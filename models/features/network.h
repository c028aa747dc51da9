#pragma once

#include <functional>
#include <string>

#include "engine/graph/graph.h"
#include "models/features/config.h"

// Networks whose features score generated images.
//
// Letters: B batch, H image side, F features, K classes.
namespace replicant::models::features {

struct Features {
  graph::Output features;       // [B, F]
  graph::Output probabilities;  // [B, K]; invalid without logits
};

// Returns the shape of a tensor of the weights' file, or throws IoError.
using ShapeOfWeight = std::function<Shape(const std::string& name)>;

// Adds the network to the graph, with a variable for each tensor that it needs,
// named like the tensor with '/' for '.'. `image` is [B, side, side, 3] u8.
// Throws ConfigError, naming the layer, for a description that is inconsistent
// or does not fit the weights, and what `shape_of` throws.
Features BuildFeatures(graph::Graph& graph, const FeatureNetworkConfig& config,
                       const ShapeOfWeight& shape_of, graph::Output image);

}  // namespace replicant::models::features
