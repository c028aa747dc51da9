#include "engine/graph/ops/optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/kernels/cuda/cuda_kernels.h"

// Updates of all variables of a node, as few launches as their arguments allow.
namespace replicant::kernels::cuda {
namespace {

// A run of the tensors that inputs [0, num_groups * count) hold in groups of
// `count`: as many as the argument of a launch has room for.
struct Piece {
  // Sets the addresses. The first node.updates.size() operands are the same as
  // inputs and as outputs.
  void Bind(const KernelBindings& bindings, TensorGroups* groups) const {
    const auto own_count = static_cast<size_t>(groups->count);
    for (size_t g = 0; g < num_groups; ++g) {
      for (size_t i = 0; i < own_count; ++i) {
        groups->pointers[g * own_count + i] = const_cast<float*>(
            In<float>(bindings, g * count + first_tensor + i));
      }
    }
  }

  size_t count, num_groups, first_tensor;
  // elements before the piece, and in it
  int64_t begin = 0;
  int64_t num_elements = 0;
};

// Calls use(piece, tensors) for all pieces, in order, with the sizes of the
// piece's tensors. Returns the number of elements of a group.
template <typename Use>
int64_t ForPieces(const KernelBuilder& builder, size_t count, size_t num_groups,
                  const Use& use) {
  const size_t room =
      std::min<size_t>(kMaxUpdateTensors, kMaxUpdatePointers / num_groups);
  int64_t begin = 0;
  for (size_t first = 0; first < count; first += room) {
    Piece piece{.count = count,
                .num_groups = num_groups,
                .first_tensor = first,
                .begin = begin};
    TensorGroups tensors{};
    tensors.count = static_cast<int>(std::min(room, count - first));
    tensors.num_gradients = 1;
    for (int i = 0; i < tensors.count; ++i) {
      tensors.first[i] = piece.num_elements;
      piece.num_elements +=
          builder.input(first + static_cast<size_t>(i)).shape.num_elements();
    }
    begin += piece.num_elements;
    use(piece, tensors);
  }
  return begin;
}

// Makes the node's part of the update from launches of `body`. `bind` sets the
// addresses of the scalars, which follow the groups: it gets the number of the
// first of them.
template <typename Body>
void LaunchUpdate(KernelBuilder& builder, const Body& body,
                  void (*bind)(Body&, const KernelBindings&, size_t scalars)) {
  const graph::Attributes& attributes = builder.attributes();
  const auto count = static_cast<size_t>(attributes.Int("count"));
  const auto num_groups = static_cast<size_t>(attributes.Int("groups"));
  const graph::UpdatePart part = graph::UpdatePartOf(attributes);
  const auto ignore = [](const Piece&, const TensorGroups&) {};
  const int64_t size = ForPieces(builder, count, num_groups, ignore);
  const int64_t begin = size * part.index / part.count;
  const int64_t end = size * (part.index + 1) / part.count;
  ForPieces(
      builder, count, num_groups,
      [&](const Piece& piece, const TensorGroups& tensors) {
        Body own = body;
        own.tensors = tensors;
        own.tensors.num_gradients = static_cast<int>(part.num_gradients);
        own.tensors.gradient_factor = static_cast<float>(part.gradient_factor);
        own.tensors.begin = std::max<int64_t>(begin - piece.begin, 0);
        const int64_t last = std::min(end - piece.begin, piece.num_elements);
        builder.Launch(own, std::max<int64_t>(last - own.tensors.begin, 0),
                       [piece, bind](Body& b, const KernelBindings& bindings) {
                         piece.Bind(bindings, &b.tensors);
                         bind(b, bindings, piece.num_groups * piece.count);
                       });
      });
}

// scalars: learning rate, scale
void MakeSgd(KernelBuilder& builder) {
  const graph::Attributes& attributes = builder.attributes();
  const SgdUpdate body{
      .momentum = static_cast<float>(attributes.Float("momentum")),
      .weight_decay = static_cast<float>(attributes.Float("weight_decay")),
      .is_nesterov = attributes.Bool("nesterov")};
  LaunchUpdate<SgdUpdate>(
      builder, body,
      [](SgdUpdate& b, const KernelBindings& bindings, size_t scalars) {
        b.rate = In<float>(bindings, scalars);
        b.scale = In<float>(bindings, scalars + 1);
      });
}

// scalars: learning rate, scale, step
void MakeAdam(KernelBuilder& builder) {
  const graph::Attributes& attributes = builder.attributes();
  const AdamUpdate body{
      .beta1 = attributes.Float("beta1"),
      .beta2 = attributes.Float("beta2"),
      .epsilon = static_cast<float>(attributes.Float("epsilon")),
      .weight_decay = static_cast<float>(attributes.Float("weight_decay"))};
  LaunchUpdate<AdamUpdate>(
      builder, body,
      [](AdamUpdate& b, const KernelBindings& bindings, size_t scalars) {
        b.rate = In<float>(bindings, scalars);
        b.scale = In<float>(bindings, scalars + 1);
        b.step = In<int64_t>(bindings, scalars + 2);
      });
}

// scalars: rate
void MakeMovingAverage(KernelBuilder& builder) {
  LaunchUpdate<MovingAverageUpdate>(
      builder, {},
      [](MovingAverageUpdate& b, const KernelBindings& bindings,
         size_t scalars) { b.rate = In<float>(bindings, scalars); });
}

void MakeGlobalNorm(KernelBuilder& builder) {
  const size_t count = builder.node().inputs.size();
  const auto parts_of = [](const Piece& piece) {
    return PartsOf(piece.num_elements / Warp::kSize, Warp::kSize);
  };
  int64_t num_parts = 0;
  ForPieces(builder, count, 1, [&](const Piece& piece, const TensorGroups&) {
    num_parts += parts_of(piece);
  });
  const size_t partial =
      builder.AddScratch(static_cast<size_t>(num_parts) * sizeof(float));
  int64_t first_part = 0;
  ForPieces(
      builder, count, 1, [&](const Piece& piece, const TensorGroups& tensors) {
        const int64_t parts = parts_of(piece);
        builder.Launch(
            SumOfSquares{
                .tensors = tensors, .size = piece.num_elements, .parts = parts},
            parts,
            [piece, partial, first_part](SumOfSquares& b,
                                         const KernelBindings& bindings) {
              piece.Bind(bindings, &b.tensors);
              b.y = Scratch<float>(bindings, partial) + first_part;
            });
        first_part += parts;
      });
  builder.Launch(RootOfSum{.n = num_parts}, 1,
                 [partial](RootOfSum& b, const KernelBindings& bindings) {
                   b.x = Scratch<float>(bindings, partial);
                   b.y = Out<float>(bindings);
                 });
}

std::string WhyNotUpdate(const KernelRequest& request) {
  if (std::string why = WhyNotF32(request); !why.empty()) return why;
  const int64_t num_groups = request.node.attributes.Int("groups");
  if (num_groups <= kMaxUpdatePointers) return {};
  return fmt::format("it takes up to {} tensors for each variable, got {}",
                     kMaxUpdatePointers, num_groups);
}

}  // namespace

void AddOptimizerKernels(CudaKernelTable& table) {
  table["SgdUpdate"] = {&MakeSgd, &WhyNotUpdate};
  table["AdamUpdate"] = {&MakeAdam, &WhyNotUpdate};
  table["MovingAverageUpdate"] = {&MakeMovingAverage, &WhyNotUpdate};
  table["GlobalNorm"] = {&MakeGlobalNorm, &WhyNotF32};
}

}  // namespace replicant::kernels::cuda
