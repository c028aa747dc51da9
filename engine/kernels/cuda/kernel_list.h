#pragma once

#include "engine/kernels/cuda/bodies/batch_norm.h"
#include "engine/kernels/cuda/bodies/batch_norm_gradient.h"
#include "engine/kernels/cuda/bodies/collective.h"
#include "engine/kernels/cuda/bodies/indexing.h"
#include "engine/kernels/cuda/bodies/linalg.h"
#include "engine/kernels/cuda/bodies/pool.h"
#include "engine/kernels/cuda/bodies/random.h"
#include "engine/kernels/cuda/bodies/reduce.h"
#include "engine/kernels/cuda/bodies/rows.h"
#include "engine/kernels/cuda/bodies/update.h"

// A body whose last argument is a number of lanes, with the longest packs and
// without: NAME and NAME_1.
#define REPLICANT_PACKED(ELEMENTS, name, body, T, ...)            \
  ELEMENTS(name, body<T, __VA_OPT__(__VA_ARGS__, ) kMaxLanes<T>>) \
  ELEMENTS(name##_1, body<T, __VA_OPT__(__VA_ARGS__, ) 1>)

// Every own kernel, by the name of its function: ELEMENTS(name, body) for a
// body that computes one element, ROWS(name, body) for one that computes one
// row with one warp. The device code, its host twin and KernelName are made
// from this list.
#define REPLICANT_OWN_KERNELS(ELEMENTS, ROWS)                                  \
  ELEMENTS(fill_8, Fill<uint8_t>)                                              \
  ELEMENTS(fill_16, Fill<uint16_t>)                                            \
  ELEMENTS(fill_32, Fill<uint32_t>)                                            \
  ELEMENTS(fill_64, Fill<uint64_t>)                                            \
  ELEMENTS(box_copy_8, BoxCopy<uint8_t>)                                       \
  ELEMENTS(box_copy_16, BoxCopy<uint16_t>)                                     \
  ELEMENTS(box_copy_32, BoxCopy<uint32_t>)                                     \
  ELEMENTS(box_copy_64, BoxCopy<uint64_t>)                                     \
  ELEMENTS(to_channels_last_f32, ToChannelsLast<float>)                        \
  ELEMENTS(to_channels_last_bf16, ToChannelsLast<BFloat16>)                    \
  ELEMENTS(from_channels_last_f32, FromChannelsLast<float, float>)             \
  ELEMENTS(from_channels_last_bf16, FromChannelsLast<BFloat16, BFloat16>)      \
  ELEMENTS(from_channels_last_bf16_f32, FromChannelsLast<BFloat16, float>)     \
  ELEMENTS(gather_8, Gather<uint8_t>)                                          \
  ELEMENTS(gather_16, Gather<uint16_t>)                                        \
  ELEMENTS(gather_32, Gather<uint32_t>)                                        \
  ELEMENTS(gather_64, Gather<uint64_t>)                                        \
  ELEMENTS(random_shift_8, RandomShift<uint8_t>)                               \
  ELEMENTS(random_shift_16, RandomShift<uint16_t>)                             \
  ELEMENTS(random_shift_32, RandomShift<uint32_t>)                             \
  ELEMENTS(gather_stacks, GatherStacks)                                        \
  ELEMENTS(scatter_add_f32, ScatterAdd<float>)                                 \
  ELEMENTS(scatter_add_bf16, ScatterAdd<BFloat16>)                             \
  ELEMENTS(one_hot_f32, OneHot<float>)                                         \
  ELEMENTS(one_hot_bf16, OneHot<BFloat16>)                                     \
  ELEMENTS(arg_max_f32, ArgMax<float>)                                         \
  ELEMENTS(arg_max_bf16, ArgMax<BFloat16>)                                     \
  ELEMENTS(round_to_bf16, RoundToBF16)                                         \
  ELEMENTS(random_uniform_f32, RandomUniform<float>)                           \
  ELEMENTS(random_uniform_bf16, RandomUniform<BFloat16>)                       \
  ELEMENTS(random_normal_f32, RandomNormal<float>)                             \
  ELEMENTS(random_normal_bf16, RandomNormal<BFloat16>)                         \
  ELEMENTS(random_int, RandomInt)                                              \
  ELEMENTS(upsample_16, Upsample<uint16_t>)                                    \
  ELEMENTS(upsample_32, Upsample<uint32_t>)                                    \
  REPLICANT_PACKED(ELEMENTS, max_pool_f32, MaxPool, float)                     \
  REPLICANT_PACKED(ELEMENTS, max_pool_bf16, MaxPool, BFloat16)                 \
  REPLICANT_PACKED(ELEMENTS, max_pool_dx_f32, MaxPoolGradient, float,          \
                   uint16_t)                                                   \
  REPLICANT_PACKED(ELEMENTS, max_pool_dx_bf16, MaxPoolGradient, BFloat16,      \
                   uint16_t)                                                   \
  REPLICANT_PACKED(ELEMENTS, max_pool_bytes_dx_f32, MaxPoolGradient, float,    \
                   uint8_t)                                                    \
  REPLICANT_PACKED(ELEMENTS, max_pool_bytes_dx_bf16, MaxPoolGradient,          \
                   BFloat16, uint8_t)                                          \
  ELEMENTS(average_pool_f32, AveragePool<float>)                               \
  ELEMENTS(average_pool_bf16, AveragePool<BFloat16>)                           \
  ELEMENTS(average_pool_dx_f32, AveragePoolGradient<float>)                    \
  ELEMENTS(average_pool_dx_bf16, AveragePoolGradient<BFloat16>)                \
  REPLICANT_PACKED(ELEMENTS, column_moments_f32, ColumnMoments, float)         \
  REPLICANT_PACKED(ELEMENTS, column_moments_bf16, ColumnMoments, BFloat16)     \
  ROWS(combine_column_moments_f32, CombineColumnMoments<float>)                \
  ROWS(combine_column_moments_bf16, CombineColumnMoments<BFloat16>)            \
  ROWS(batch_norm_vectors_f32, BatchNormVectors<float>)                        \
  ROWS(batch_norm_vectors_bf16, BatchNormVectors<BFloat16>)                    \
  ELEMENTS(batch_norm_totals_f32, BatchNormTotals<float>)                      \
  ELEMENTS(batch_norm_totals_bf16, BatchNormTotals<BFloat16>)                  \
  ELEMENTS(batch_norm_dmoments_f32, BatchNormMomentsGradient<float>)           \
  ELEMENTS(batch_norm_dmoments_bf16, BatchNormMomentsGradient<BFloat16>)       \
  ELEMENTS(combine_moments_f32, CombineMoments<float>)                         \
  ELEMENTS(combine_moments_bf16, CombineMoments<BFloat16>)                     \
  ELEMENTS(combine_moments_dx_f32, CombineMomentsGradient<float>)              \
  ELEMENTS(combine_moments_dx_bf16, CombineMomentsGradient<BFloat16>)          \
  REPLICANT_PACKED(ELEMENTS, batch_norm_f32, BatchNorm, float, float)          \
  REPLICANT_PACKED(ELEMENTS, batch_norm_bf16, BatchNorm, BFloat16, BFloat16)   \
  REPLICANT_PACKED(ELEMENTS, batch_norm_bf16_f32, BatchNorm, BFloat16, float)  \
  REPLICANT_PACKED(ELEMENTS, batch_norm_sums_f32, BatchNormSums, float, float) \
  REPLICANT_PACKED(ELEMENTS, batch_norm_sums_bf16, BatchNormSums, BFloat16,    \
                   BFloat16)                                                   \
  REPLICANT_PACKED(ELEMENTS, batch_norm_sums_bf16_f32, BatchNormSums,          \
                   BFloat16, float)                                            \
  REPLICANT_PACKED(ELEMENTS, batch_norm_masked_sums_f32, BatchNormMaskedSums,  \
                   float, float)                                               \
  REPLICANT_PACKED(ELEMENTS, batch_norm_masked_sums_bf16, BatchNormMaskedSums, \
                   BFloat16, BFloat16)                                         \
  REPLICANT_PACKED(ELEMENTS, batch_norm_masked_sums_bf16_f32,                  \
                   BatchNormMaskedSums, BFloat16, float)                       \
  REPLICANT_PACKED(ELEMENTS, batch_norm_dx_f32, BatchNormInputGradient, float, \
                   float)                                                      \
  REPLICANT_PACKED(ELEMENTS, batch_norm_dx_bf16, BatchNormInputGradient,       \
                   BFloat16, BFloat16)                                         \
  REPLICANT_PACKED(ELEMENTS, batch_norm_dx_bf16_f32, BatchNormInputGradient,   \
                   BFloat16, float)                                            \
  REPLICANT_PACKED(ELEMENTS, batch_norm_max_pool_f32, BatchNormMaxPool, float, \
                   float)                                                      \
  REPLICANT_PACKED(ELEMENTS, batch_norm_max_pool_bf16, BatchNormMaxPool,       \
                   BFloat16, BFloat16)                                         \
  REPLICANT_PACKED(ELEMENTS, batch_norm_max_pool_bf16_f32, BatchNormMaxPool,   \
                   BFloat16, float)                                            \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_f32, BatchNormPair, float, float) \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_bf16, BatchNormPair, BFloat16,    \
                   BFloat16)                                                   \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_bf16_f32, BatchNormPair,          \
                   BFloat16, float)                                            \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_sums_f32, BatchNormPairSums,      \
                   float, float)                                               \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_sums_bf16, BatchNormPairSums,     \
                   BFloat16, BFloat16)                                         \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_sums_bf16_f32, BatchNormPairSums, \
                   BFloat16, float)                                            \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_dx_f32,                           \
                   BatchNormPairInputGradient, float, float)                   \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_dx_bf16,                          \
                   BatchNormPairInputGradient, BFloat16, BFloat16)             \
  REPLICANT_PACKED(ELEMENTS, batch_norm_pair_dx_bf16_f32,                      \
                   BatchNormPairInputGradient, BFloat16, float)                \
  ROWS(reduce_row_f32, ReduceRow<float, float>)                                \
  ROWS(reduce_row_bf16, ReduceRow<BFloat16, BFloat16>)                         \
  ROWS(reduce_row_bf16_f32, ReduceRow<BFloat16, float>)                        \
  ROWS(reduce_row_f32_bf16, ReduceRow<float, BFloat16>)                        \
  ROWS(reduce_row_i64, ReduceRow<int64_t, int64_t>)                            \
  ELEMENTS(reduce_column_f32, ReduceColumn<float, float>)                      \
  ELEMENTS(reduce_column_bf16, ReduceColumn<BFloat16, BFloat16>)               \
  ELEMENTS(reduce_column_bf16_f32, ReduceColumn<BFloat16, float>)              \
  ELEMENTS(reduce_column_f32_bf16, ReduceColumn<float, BFloat16>)              \
  ELEMENTS(reduce_column_i64, ReduceColumn<int64_t, int64_t>)                  \
  ROWS(reduce_box_f32, ReduceBox<float, float>)                                \
  ROWS(reduce_box_bf16, ReduceBox<BFloat16, BFloat16>)                         \
  ROWS(reduce_box_bf16_f32, ReduceBox<BFloat16, float>)                        \
  ROWS(reduce_box_i64, ReduceBox<int64_t, int64_t>)                            \
  ROWS(softmax_f32, Softmax<float>)                                            \
  ROWS(softmax_bf16, Softmax<BFloat16>)                                        \
  ROWS(cross_entropy_f32, CrossEntropy<float>)                                 \
  ROWS(cross_entropy_bf16, CrossEntropy<BFloat16>)                             \
  ROWS(projection_f32, Projection<float>)                                      \
  ROWS(projection_bf16, Projection<BFloat16>)                                  \
  ROWS(layer_norm_f32, LayerNorm<float, float>)                                \
  ROWS(layer_norm_bf16, LayerNorm<BFloat16, BFloat16>)                         \
  ROWS(layer_norm_bf16_f32, LayerNorm<BFloat16, float>)                        \
  ROWS(layer_norm_dx_f32, LayerNormInputGradient<float, float>)                \
  ROWS(layer_norm_dx_bf16, LayerNormInputGradient<BFloat16, BFloat16>)         \
  ROWS(layer_norm_dx_bf16_f32, LayerNormInputGradient<BFloat16, float>)        \
  ELEMENTS(layer_norm_dv_f32, LayerNormVectorGradient<float, float>)           \
  ELEMENTS(layer_norm_dv_bf16, LayerNormVectorGradient<BFloat16, BFloat16>)    \
  ELEMENTS(layer_norm_dv_bf16_f32, LayerNormVectorGradient<BFloat16, float>)   \
  ROWS(cholesky_solve_f32, CholeskySolve<float>)                               \
  ROWS(cholesky_solve_bf16, CholeskySolve<BFloat16>)                           \
  ELEMENTS(sgd_update, SgdUpdate)                                              \
  ELEMENTS(adam_update, AdamUpdate)                                            \
  ELEMENTS(moving_average_update, MovingAverageUpdate)                         \
  ROWS(sum_of_squares, SumOfSquares)                                           \
  ROWS(root_of_sum, RootOfSum)                                                 \
  ELEMENTS(combine_replicas_f32, CombineReplicas<float>)                       \
  ELEMENTS(combine_replicas_bf16, CombineReplicas<BFloat16>)                   \
  ELEMENTS(combine_replicas_i32, CombineReplicas<int32_t>)                     \
  ELEMENTS(combine_replicas_i64, CombineReplicas<int64_t>)                     \
  ELEMENTS(pack_bucket_f32, PackBucket<float, float>)                          \
  ELEMENTS(pack_bucket_bf16, PackBucket<BFloat16, BFloat16>)                   \
  ELEMENTS(pack_bucket_f32_bf16, PackBucket<float, BFloat16>)                  \
  ELEMENTS(unpack_bucket_f32, UnpackBucket<float, float>)                      \
  ELEMENTS(unpack_bucket_bf16, UnpackBucket<BFloat16, BFloat16>)               \
  ELEMENTS(unpack_bucket_bf16_f32, UnpackBucket<BFloat16, float>)

namespace replicant::kernels::cuda {

// KernelName<Body>::kName is the function of a body; kIsRow tells the kind.
template <typename Body>
struct KernelName;

// a body may have commas, so it is the macro's last argument
#define REPLICANT_ELEMENT_NAME(name, ...)       \
  template <>                                   \
  struct KernelName<__VA_ARGS__> {              \
    static constexpr const char* kName = #name; \
    static constexpr bool kIsRow = false;       \
  };
#define REPLICANT_ROW_NAME(name, ...)           \
  template <>                                   \
  struct KernelName<__VA_ARGS__> {              \
    static constexpr const char* kName = #name; \
    static constexpr bool kIsRow = true;        \
  };
REPLICANT_OWN_KERNELS(REPLICANT_ELEMENT_NAME, REPLICANT_ROW_NAME)
#undef REPLICANT_ELEMENT_NAME
#undef REPLICANT_ROW_NAME

}  // namespace replicant::kernels::cuda
