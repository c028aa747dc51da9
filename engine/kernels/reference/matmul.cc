#include "engine/kernels/common/element.h"
#include "engine/kernels/common/program.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace replicant::kernels::reference {
namespace {

// Offsets of a matrix's element (row, column).
struct MatrixStrides {
  int64_t row;
  int64_t column;
};

MatrixStrides StridesOf(const Shape& shape, bool is_transposed) {
  return is_transposed ? MatrixStrides{1, shape[1]}
                       : MatrixStrides{shape[1], 1};
}

struct MatMulPlan {
  int64_t m, n, k;
  MatrixStrides a, b;
  bool has_bias;
  DType bias_dtype;
  Activation activation;
};

template <typename In, typename Out>
void Run(const MatMulPlan& plan, const Operands& operands) {
  const In* a = operands.input<In>(0);
  const In* b = operands.input<In>(1);
  Out* c = operands.output<Out>();
  for (int64_t m = 0; m < plan.m; ++m) {
    for (int64_t n = 0; n < plan.n; ++n) {
      double sum = 0.0;
      for (int64_t k = 0; k < plan.k; ++k) {
        sum += ToDouble(a[m * plan.a.row + k * plan.a.column]) *
               ToDouble(b[k * plan.b.row + n * plan.b.column]);
      }
      if (plan.has_bias) {
        sum =
            BeforeBias<Out>(sum) + Load(operands.inputs[2], plan.bias_dtype, n);
      }
      // rounded like the result of a node without an activation
      c[m * plan.n + n] =
          FromDouble<Out>(plan.activation(ToDouble(FromDouble<Out>(sum))));
    }
  }
}

RunFunction MakeMatMul(const KernelRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const bool transpose_a = attributes.Bool("transpose_a");
  const Shape& a = request.input(0).shape;
  const Shape& c = request.output().shape;
  const MatMulPlan plan{
      .m = c[0],
      .n = c[1],
      .k = a[transpose_a ? 0 : 1],
      .a = StridesOf(a, transpose_a),
      .b = StridesOf(request.input(1).shape, attributes.Bool("transpose_b")),
      .has_bias = request.node.inputs.size() > 2,
      .bias_dtype = request.input(request.node.inputs.size() - 1).dtype,
      .activation = Activation(attributes)};
  return DispatchFloating(request.input(0).dtype, request.output().dtype,
                          [&]<typename In, typename Out>() -> RunFunction {
                            return [plan](const Operands& operands) {
                              Run<In, Out>(plan, operands);
                            };
                          });
}

}  // namespace

void AddMatMulKernels(HostKernelTable& table) {
  table.emplace("MatMul", &MakeMatMul);
}

}  // namespace replicant::kernels::reference
