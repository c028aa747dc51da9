#pragma once

namespace replicant::testing {

// An H100 as cuDNN describes devices, from NVIDIA's data sheet.
inline constexpr const char* kH100 = R"({"deviceVer":900,"driverVer":1,
"cudaDeviceId":0,"totalGlobalMem":84942979072,
"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],
"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,
"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
"reservedSharedMemoryPerBlock":1024,"maxSharedMemoryPerSM":233472,
"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,
"maxThreadsPerSM":2048,"pciDeviceId":9008,"isTccDriver":0,
"supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,
"l2CacheSize":52428800,"deviceName":"NVIDIA H100 80GB HBM3"})";

}  // namespace replicant::testing
