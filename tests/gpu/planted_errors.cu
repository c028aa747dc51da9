// Errors for compute-sanitizer to find, one for each of its tools, so that a
// tool that is missing or blind cannot pass (scripts/gpu/check).
//
//   planted_errors memcheck|racecheck|initcheck|synccheck
#include <cstdio>
#include <cstring>

namespace {

constexpr int kThreads = 64;

// memcheck: a write behind the allocation
__global__ void WriteBehind(int* data) { data[kThreads + threadIdx.x] = 1; }

// racecheck: threads read what others write, without a barrier
__global__ void Race(int* data) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  data[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

// initcheck: a read of memory that nobody has written
__global__ void ReadUnwritten(const int* from, int* to) {
  to[threadIdx.x] = from[threadIdx.x] + 1;
}

// synccheck: a barrier that some threads of the block do not reach
__global__ void SkipBarrier(int* data) {
  if (threadIdx.x < 16) __syncthreads();
  data[threadIdx.x] = 1;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const kind = argc == 2 ? argv[1] : "";
  int* data = nullptr;
  int* more = nullptr;
  if (cudaMalloc(&data, kThreads * sizeof(int)) != cudaSuccess ||
      cudaMalloc(&more, kThreads * sizeof(int)) != cudaSuccess) {
    std::fprintf(stderr, "planted_errors: no device\n");
    return 3;
  }
  if (std::strcmp(kind, "memcheck") == 0) {
    WriteBehind<<<1, kThreads>>>(data);
  } else if (std::strcmp(kind, "racecheck") == 0) {
    Race<<<1, kThreads>>>(data);
  } else if (std::strcmp(kind, "initcheck") == 0) {
    ReadUnwritten<<<1, kThreads>>>(data, more);
  } else if (std::strcmp(kind, "synccheck") == 0) {
    SkipBarrier<<<1, kThreads>>>(data);
  } else {
    std::fprintf(stderr,
                 "usage: planted_errors "
                 "memcheck|racecheck|initcheck|synccheck\n");
    return 2;
  }
  // the program itself does not fail: the tool must
  static_cast<void>(cudaDeviceSynchronize());
  return 0;
}
