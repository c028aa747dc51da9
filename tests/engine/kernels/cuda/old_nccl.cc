// A library with the entry points of NCCL and an old version, to be loaded in
// its place. No other entry point is called.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

// 2.18.1
int ncclGetVersion(int* version) {
  *version = 21801;
  return 0;
}

void ncclGetUniqueId() {}
void ncclCommInitRankConfig() {}
void ncclCommFinalize() {}
void ncclCommDestroy() {}
void ncclCommAbort() {}
void ncclCommGetAsyncError() {}
void ncclGetErrorString() {}
void ncclGetLastError() {}
void ncclAllReduce() {}
void ncclAllGather() {}
void ncclReduceScatter() {}
void ncclBroadcast() {}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
