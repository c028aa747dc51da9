// The beginning of every generated elementwise kernel, for NVRTC and for host
// compilers. It includes nothing: NVRTC has no standard headers.
//
//   ELEMENTWISE_KERNEL(name) { ... }
//
// defines the function `name` with the argument `a` (ElementwiseArgument). Its
// body computes the elements of pack i.
struct Argument {
  const void* inputs[16];
  void* output;
};

#ifdef __CUDACC_RTC__

#define DEVICE __device__ inline
#define UNROLL _Pragma("unroll")
#define INF __int_as_float(0x7F800000)
#define ELEMENTWISE_KERNEL(name)                                         \
  DEVICE void Element(const Argument& a, long long i);                   \
  extern "C" __global__ void name(const __grid_constant__ Argument a,    \
                                  long long count) {                     \
    const long long step = (long long)gridDim.x * blockDim.x;            \
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; \
         i < count; i += step) {                                         \
      Element(a, i);                                                     \
    }                                                                    \
  }                                                                      \
  DEVICE void Element(const Argument& a, long long i)
DEVICE unsigned BitsOf(float x) { return __float_as_uint(x); }
DEVICE float FloatOf(unsigned bits) { return __uint_as_float(bits); }
namespace math {
using ::cos;
using ::exp;
using ::expm1;
using ::fabs;
using ::floor;
using ::log;
using ::log1p;
using ::sin;
using ::sqrt;
using ::tanh;
using ::trunc;
}  // namespace math

#else

#define DEVICE inline
#define UNROLL
#define INF __builtin_inff()
#define ELEMENTWISE_KERNEL(name)                                 \
  DEVICE void Element(const Argument& a, long long i);           \
  extern "C" void name(const void* argument, long long count) {  \
    const Argument& a = *static_cast<const Argument*>(argument); \
    for (long long i = 0; i < count; ++i) Element(a, i);         \
  }                                                              \
  DEVICE void Element(const Argument& a, long long i)
DEVICE unsigned BitsOf(float x) { return __builtin_bit_cast(unsigned, x); }
DEVICE float FloatOf(unsigned bits) { return __builtin_bit_cast(float, bits); }
namespace math {
DEVICE float cos(float x) { return __builtin_cosf(x); }
DEVICE double cos(double x) { return __builtin_cos(x); }
DEVICE float exp(float x) { return __builtin_expf(x); }
DEVICE double exp(double x) { return __builtin_exp(x); }
DEVICE float expm1(float x) { return __builtin_expm1f(x); }
DEVICE double expm1(double x) { return __builtin_expm1(x); }
DEVICE float fabs(float x) { return __builtin_fabsf(x); }
DEVICE double fabs(double x) { return __builtin_fabs(x); }
DEVICE float floor(float x) { return __builtin_floorf(x); }
DEVICE double floor(double x) { return __builtin_floor(x); }
DEVICE float log(float x) { return __builtin_logf(x); }
DEVICE double log(double x) { return __builtin_log(x); }
DEVICE float log1p(float x) { return __builtin_log1pf(x); }
DEVICE double log1p(double x) { return __builtin_log1p(x); }
DEVICE float sin(float x) { return __builtin_sinf(x); }
DEVICE double sin(double x) { return __builtin_sin(x); }
DEVICE float sqrt(float x) { return __builtin_sqrtf(x); }
DEVICE double sqrt(double x) { return __builtin_sqrt(x); }
DEVICE float tanh(float x) { return __builtin_tanhf(x); }
DEVICE double tanh(double x) { return __builtin_tanh(x); }
DEVICE float trunc(float x) { return __builtin_truncf(x); }
DEVICE double trunc(double x) { return __builtin_trunc(x); }
}  // namespace math

#endif

// BFloat16(x), the upper half of a float, rounded to nearest even.
DEVICE unsigned short ToBFloat16(float x) {
  const unsigned word = BitsOf(x);
  if ((word & 0x7FFFFFFFu) > 0x7F800000u) {
    return (unsigned short)((word >> 16) | 0x40u);
  }
  return (unsigned short)((word + 0x7FFFu + ((word >> 16) & 1u)) >> 16);
}

// Element_<dtype> is an element in memory.
using Element_f32 = float;
using Element_bf16 = unsigned short;
using Element_u8 = unsigned char;
using Element_bool = unsigned char;
using Element_i32 = int;
using Element_i64 = long long;

// Neighbours in memory, which a thread loads or stores at once.
template <typename T, int kLanes>
struct alignas(sizeof(T) * kLanes) Pack {
  DEVICE static Pack At(const void* x, long long i) {
    return *(const Pack*)((const T*)x + i);
  }
  DEVICE void StoreAt(void* y, long long i) const {
    *(Pack*)((T*)y + i) = *this;
  }

  T values[kLanes];
};

// Elements as float or double: Load_<dtype>, Store_<dtype>.
DEVICE float Load_f32(const void* x, long long i) {
  return ((const float*)x)[i];
}
DEVICE float Load_bf16(const void* x, long long i) {
  return FloatOf((unsigned)((const unsigned short*)x)[i] << 16);
}
DEVICE float Load_u8(const void* x, long long i) {
  return ((const unsigned char*)x)[i];
}
DEVICE float Load_bool(const void* x, long long i) {
  return ((const unsigned char*)x)[i];
}
DEVICE double Load_i32(const void* x, long long i) {
  return ((const int*)x)[i];
}
DEVICE double Load_i64(const void* x, long long i) {
  return (double)((const long long*)x)[i];
}

// Results that a dtype can hold: graph::RoundToDType().
template <typename R>
DEVICE R Saturate(R x, R low, R high) {
  if (x != x) return 0;
  return x <= low ? low : (x >= high ? high : math::trunc(x));
}
template <typename R>
DEVICE float Round_f32(R x) {
  return (float)x;
}
template <typename R>
DEVICE float Round_bf16(R x) {
  return FloatOf((unsigned)ToBFloat16((float)x) << 16);
}
template <typename R>
DEVICE float Round_u8(R x) {
  return (float)Saturate<R>(x, 0, 255);
}
template <typename R>
DEVICE float Round_bool(R x) {
  return x != 0 ? 1.0f : 0.0f;
}
template <typename R>
DEVICE double Round_i32(R x) {
  return Saturate<double>(x, -2147483648.0, 2147483647.0);
}
template <typename R>
DEVICE double Round_i64(R x) {
  return Saturate<double>(x, -9223372036854775808.0, 9223372036854775808.0);
}

DEVICE void Store_f32(void* y, long long i, float x) { ((float*)y)[i] = x; }
DEVICE void Store_bf16(void* y, long long i, float x) {
  ((unsigned short*)y)[i] = ToBFloat16(x);
}
DEVICE void Store_u8(void* y, long long i, float x) {
  ((unsigned char*)y)[i] = (unsigned char)x;
}
DEVICE void Store_bool(void* y, long long i, float x) {
  ((unsigned char*)y)[i] = x != 0.0f;
}
DEVICE void Store_i32(void* y, long long i, double x) { ((int*)y)[i] = (int)x; }
DEVICE void Store_i64(void* y, long long i, double x) {
  // the double nearest to the largest integer is 2^63
  ((long long*)y)[i] =
      x >= 9223372036854775808.0 ? 9223372036854775807LL : (long long)x;
}

// graph::EvaluateScalarOp(), in float or double.
template <typename R>
DEVICE R Copy(R a) {
  return a;
}
template <typename R>
DEVICE R Neg(R a) {
  return -a;
}
template <typename R>
DEVICE R Abs(R a) {
  return math::fabs(a);
}
template <typename R>
DEVICE R Sign(R a) {
  return a > 0 ? R(1) : (a < 0 ? R(-1) : (a != a ? a : R(0)));
}
template <typename R>
DEVICE R Exp(R a) {
  return math::exp(a);
}
template <typename R>
DEVICE R Log(R a) {
  return math::log(a);
}
template <typename R>
DEVICE R Sqrt(R a) {
  return math::sqrt(a);
}
template <typename R>
DEVICE R Square(R a) {
  return a * a;
}
template <typename R>
DEVICE R Sin(R a) {
  return math::sin(a);
}
template <typename R>
DEVICE R Cos(R a) {
  return math::cos(a);
}
template <typename R>
DEVICE R Tanh(R a) {
  return math::tanh(a);
}
template <typename R>
DEVICE R Sigmoid(R a) {
  if (a >= 0) return R(1) / (R(1) + math::exp(-a));
  const R e = math::exp(a);
  return e / (R(1) + e);
}
template <typename R>
DEVICE R Softplus(R a) {
  return (a > 0 ? a : R(0)) + math::log1p(math::exp(-math::fabs(a))) +
         (a != a ? a : R(0));
}
template <typename R>
DEVICE R Relu(R a) {
  return a > 0 || a != a ? a : R(0);
}
template <typename R>
DEVICE R LeakyRelu(R a, R p) {
  return a > 0 ? a : p * a;
}
template <typename R>
DEVICE R Elu(R a, R p) {
  return a > 0 ? a : p * math::expm1(a);
}
template <typename R>
DEVICE R Clip(R a, R p, R q) {
  return a < p ? p : (a > q ? q : a);
}
template <typename R>
DEVICE R Affine(R a, R p, R q) {
  return p * a + q;
}
template <typename R>
DEVICE R Not(R a) {
  return R(a == 0);
}
template <typename R>
DEVICE R Add(R a, R b) {
  return a + b;
}
template <typename R>
DEVICE R Sub(R a, R b) {
  return a - b;
}
template <typename R>
DEVICE R Mul(R a, R b) {
  return a * b;
}
template <typename R>
DEVICE R Div(R a, R b) {
  return a / b;
}
template <typename R>
DEVICE R Modulo(R a, R b) {
  return b == 0 ? R(0) : a - b * math::floor(a / b);
}
template <typename R>
DEVICE R Minimum(R a, R b) {
  return a != a ? a : (b < a || b != b ? b : a);
}
template <typename R>
DEVICE R Maximum(R a, R b) {
  return a != a ? a : (b > a || b != b ? b : a);
}
template <typename R>
DEVICE R Less(R a, R b) {
  return R(a < b);
}
template <typename R>
DEVICE R LessEqual(R a, R b) {
  return R(a <= b);
}
template <typename R>
DEVICE R Greater(R a, R b) {
  return R(a > b);
}
template <typename R>
DEVICE R GreaterEqual(R a, R b) {
  return R(a >= b);
}
template <typename R>
DEVICE R Equal(R a, R b) {
  return R(a == b);
}
template <typename R>
DEVICE R NotEqual(R a, R b) {
  return R(a != b);
}
template <typename R>
DEVICE R And(R a, R b) {
  return R(a != 0 && b != 0);
}
template <typename R>
DEVICE R Or(R a, R b) {
  return R(a != 0 || b != 0);
}
template <typename R>
DEVICE R Where(R a, R b, R c) {
  return a != 0 ? b : c;
}
