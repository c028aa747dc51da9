#!/usr/bin/env bash
# cuDNN 9.22: a convolution whose epilogue sums its result for a batch norm has
# engines for an H100 in f16, and none in bf16.
#
# Behaviour: the graph interface takes a convolution followed by GEN_STATS (sums of
# the result and of its squares) in either type, and both graphs finalize. The
# heuristics then offer configurations in f16 and an empty list in bf16, where the
# convolution alone has some in both. No call fails, and asked for the list's length
# alone they answer as for f16, so that a program finds out when the list comes. With
# 9.19 it is so for all layers of ResNet-50 but the first. No GPU is needed to ask: the
# device is described by its properties.
#
# Output seen (Debian 12, g++ 12), configurations of both heuristics for 56x56x64, 3x3:
#   cudnn 92200: f16 alone yes, with statistics yes; bf16 alone yes, with statistics no
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/ask.cc" <<'CC'
#include <cudnn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using Handle = cudnnBackendDescriptor_t;
void Check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::printf("%s: %s\n", call, cudnnGetErrorString(status));
  std::exit(1);
}
Handle Make(cudnnBackendDescriptorType_t type) {
  Handle d;
  Check(cudnnBackendCreateDescriptor(type, &d), "create");
  return d;
}
template <typename T>
void Set(Handle d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         const std::vector<T>& values) {
  Check(cudnnBackendSetAttribute(d, name, type, static_cast<int64_t>(values.size()),
                                 values.data()), "set");
}
void Set(Handle d, cudnnBackendAttributeName_t name, Handle value) {
  Set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector<Handle>{value});
}
Handle Finalize(Handle d) {
  Check(cudnnBackendFinalize(d), "finalize");
  return d;
}
// a tensor with channels last
Handle Tensor(int64_t id, cudnnDataType_t type, int64_t n, int64_t h, int64_t w, int64_t c) {
  const Handle d = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  Set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector<int64_t>{id});
  Set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector<cudnnDataType_t>{type});
  Set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector<int64_t>{16});
  Set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::vector<int64_t>{n, c, h, w});
  Set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::vector<int64_t>{h * w * c, 1, w * c, c});
  return Finalize(d);
}
// How many configurations the heuristics offer for an H100.
int64_t Offers(cudnnDataType_t type, bool has_statistics, Handle device) {
  const std::vector<int64_t> ones = {1, 1};
  const std::vector<cudnnDataType_t> f32 = {CUDNN_DATA_FLOAT};
  const Handle conv = Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  Set(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::vector<int64_t>{2});
  Set(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, f32);
  Set(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
      std::vector<cudnnConvolutionMode_t>{CUDNN_CROSS_CORRELATION});
  for (auto name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                    CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES}) {
    Set(conv, name, CUDNN_TYPE_INT64, ones);
  }
  Finalize(conv);
  const Handle y = Tensor(3, type, 256, 56, 56, 64);
  const Handle product = Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  Set(product, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv);
  Set(product, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, Tensor(1, type, 256, 56, 56, 64));
  Set(product, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, Tensor(2, type, 64, 3, 3, 64));
  Set(product, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  Set(product, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT,
      std::vector<float>{1});
  Set(product, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT,
      std::vector<float>{0});
  std::vector<Handle> ops = {Finalize(product)};
  if (has_statistics) {
    const Handle stats = Make(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    Set(stats, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE,
        std::vector<cudnnGenStatsMode_t>{CUDNN_GENSTATS_SUM_SQSUM});
    Set(stats, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, f32);
    Set(stats, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
    Set(stats, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, Tensor(4, CUDNN_DATA_FLOAT, 1, 1, 1, 64));
    Set(stats, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, Tensor(5, CUDNN_DATA_FLOAT, 1, 1, 1, 64));
    ops.push_back(Finalize(stats));
  }
  const Handle graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ops);
  Finalize(graph);
  int64_t offers = 0;
  for (auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    const Handle heuristics = Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    Set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    Set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
        std::vector<cudnnBackendHeurMode_t>{mode});
    Set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    int64_t count = 0;
    if (cudnnBackendFinalize(heuristics) != CUDNN_STATUS_SUCCESS) continue;
    Check(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr), "get");
    // at most so many: only the list itself tells how many there are
    std::vector<Handle> list;
    for (int64_t i = 0; i < count; ++i) list.push_back(Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    Check(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, list.data()),
          "get");
    offers += count;
  }
  return offers;
}
int main() {
  const std::string h100 =
      R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,
"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,
"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,
"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":6,"isTccDriver":0,
"supportCoopLaunch":1,"totalGlobalMem":85017493504,"smClockRateKHz":1980000,
"memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,"deviceVer":900,
"driverVer":13000,"deviceName":"NVIDIA H100 80GB HBM3"})";
  const Handle device = Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  Set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
      std::vector<char>(h100.begin(), h100.end()));
  Finalize(device);
  std::printf("cudnn %zu:", cudnnGetVersion());
  for (const auto type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    const bool is_half = type == CUDNN_DATA_HALF;
    std::printf(" %s alone %s, with statistics %s%s", is_half ? "f16" : "bf16",
                Offers(type, false, device) > 0 ? "yes" : "no",
                Offers(type, true, device) > 0 ? "yes" : "no", is_half ? ";" : "\n");
  }
}
CC
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q nvidia-cudnn-cu13==9.22.0.52 nvidia-cuda-runtime==13.0.96 \
  nvidia-cuda-nvrtc==13.0.88
packages=$(echo "$folder"/env/lib/python3*/site-packages/nvidia)
g++ -std=c++17 -I "$packages/cudnn/include" -I "$packages/cu13/include" "$folder/ask.cc" \
  -o "$folder/ask" "$packages/cudnn/lib/libcudnn.so.9"
seen=$(LD_LIBRARY_PATH="$packages/cudnn/lib:$packages/cu13/lib" "$folder/ask")
echo "$seen"
[[ $seen == "cudnn 92200: f16 alone yes, with statistics yes; bf16 alone yes, with statistics no" ]]
