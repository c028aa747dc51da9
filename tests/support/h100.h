#pragma once

namespace replicant::testing {

// An H100 as cuDNN describes it on a machine that has one.
inline constexpr const char* kH100 =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],
"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,
"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,
"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,
"pciDeviceId":6,"isTccDriver":0,"supportCoopLaunch":1,
"totalGlobalMem":85017493504,"smClockRateKHz":1980000,
"memClockRateKHz":2619000,"l2CacheSize":52428800,"cudaDeviceId":0,
"deviceVer":900,"driverVer":13000,"deviceName":"NVIDIA H100 80GB HBM3"})";

}  // namespace replicant::testing
