// The operations of a step that gain most from being one pass over memory, for the CPU they are compiled on. Called by
// native.py, explained in notebook 01.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <omp.h>

// A register holds LANES floats. A tile of ROWS x OUTS registers of sums, OUTS of weights and one of x has to fit: 28
// of the 32 that AVX-512 has, all 16 of AVX2.
#ifndef LANES
#ifdef __AVX512F__
#define LANES 16
#define ROWS 8
#elif defined(__AVX2__)
#define LANES 8
#define ROWS 4
#else
#define LANES 4
#define ROWS 4
#endif
#endif
constexpr int OUTS = 3;
constexpr int PANEL = OUTS * LANES;  // outputs whose weights lie side by side
constexpr int AHEAD = 2048;          // bytes: how long before their use weights are asked for
constexpr int FEW = 64;              // rows below which waking a second thread costs more than it gives

using Lanes = float __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));

struct bfloat16 {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
  bfloat16& operator=(float value) {  // to the nearest, ties to even; a NaN that comes of bfloat16 has no bits to carry
    const uint32_t word = std::bit_cast<uint32_t>(value);
    bits = (word + 0x7fff + (word >> 16 & 1)) >> 16;
    return *this;
  }
};

// M rows of y, the `outs` columns of one panel: x [into, ROWS] times weight [into, PANEL]. Rows of y and residual are
// `stride` apart. Each sum is made in the same order whatever M: a row's numbers do not depend on its neighbours.
template <int M>
void tile(const float* x, const float* weight, const float* residual, float* y, int into, int outs, int64_t stride) {
  Lanes sums[M][OUTS] = {};
  for (int k = 0; k < into; k++, x += ROWS, weight += PANEL) {
    Lanes w[OUTS];
    for (int o = 0; o < OUTS; o++) {
      w[o] = *reinterpret_cast<const Lanes*>(weight + o * LANES);
      __builtin_prefetch(weight + o * LANES + AHEAD / sizeof(float));
    }
    for (int m = 0; m < M; m++)
      for (int o = 0; o < OUTS; o++) sums[m][o] += x[m] * w[o];
  }
  for (int m = 0; m < M; m++) {
    const float* sum = reinterpret_cast<const float*>(sums[m]);
    for (int o = 0; o < outs; o++) y[m * stride + o] = sum[o] + (residual ? residual[m * stride + o] : 0);
  }
}

template <int... M>
constexpr auto tiles(std::integer_sequence<int, M...>) {
  return std::array{&tile<M + 1>...};
}
constexpr auto TILES = tiles(std::make_integer_sequence<int, ROWS>());  // TILES[M - 1] is tile<M>

template <class T>
void norm(const T* x, const T* weight, T* y, int rows, int hidden, float eps, int threads) {
#pragma omp parallel for num_threads(threads) if (rows > FEW)
  for (int row = 0; row < rows; row++) {
    const int64_t first = int64_t(row) * hidden;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int i = 0; i < hidden; i++) squares += float(x[first + i]) * float(x[first + i]);
    const float scale = 1 / std::sqrt(squares / hidden + eps);
    for (int i = 0; i < hidden; i++) y[first + i] = float(x[first + i]) * scale * float(weight[i]);
  }
}

template <class T>
void turn(const T* x, int64_t stride, const float* cos, const float* sin, T* y, int rows, int heads, int dim,
          int threads) {
#pragma omp parallel for num_threads(threads) if (rows > FEW)
  for (int row = 0; row < rows; row++)
    for (int head = 0; head < heads; head++) {
      const T* in = x + row * stride + head * dim;
      T* out = y + (int64_t(row) * heads + head) * dim;
      const float *c = cos + int64_t(row) * dim, *s = sin + int64_t(row) * dim;
      for (int i = 0, j = dim / 2; i < dim / 2; i++, j++) {
        const float a = in[i], b = in[j];
        out[i] = a * c[i] + b * s[i];
        out[j] = b * c[j] + a * s[j];
      }
    }
}

// What Python calls. Matrices are row after row without gaps, but that rows of the x of a rotation are `stride` apart.
extern "C" {

int panel() { return PANEL; }

// y [rows, outs] = x [rows, into] times the weights [panels, into, PANEL], plus residual [rows, outs] if it is not
// null. Each thread has panels of its own and streams them one after another.
void product(const float* x, const float* weight, const float* residual, float* y, int rows, int into, int outs,
             int threads) {
  const int panels = (outs + PANEL - 1) / PANEL;
#pragma omp parallel num_threads(threads)
  {
    static thread_local std::vector<float> turned;  // x as [row tiles, into, ROWS], so that a tile reads on and on
    turned.resize(int64_t(rows + ROWS - 1) / ROWS * ROWS * into);
    for (int row = 0; row < rows; row++)
      for (int k = 0; k < into; k++)
        turned[(int64_t(row / ROWS) * into + k) * ROWS + row % ROWS] = x[int64_t(row) * into + k];
    const int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
    for (int64_t p = panels * thread / team; p < panels * (thread + 1) / team; p++)
      for (int64_t row = 0; row < rows; row += ROWS) {  // after the first, the panel comes out of a cache
        const int64_t first = row * outs + p * PANEL;
        const auto of_rows = TILES[std::min<int64_t>(ROWS, rows - row) - 1];
        of_rows(&turned[row * into], weight + p * PANEL * into, residual ? residual + first : nullptr, y + first, into,
                std::min<int64_t>(PANEL, outs - p * PANEL), outs);
      }
  }
}

void rms_norm_float32(const float* x, const float* weight, float* y, int rows, int hidden, float eps, int threads) {
  norm(x, weight, y, rows, hidden, eps, threads);
}

void rms_norm_bfloat16(const bfloat16* x, const bfloat16* weight, bfloat16* y, int rows, int hidden, float eps,
                       int threads) {
  norm(x, weight, y, rows, hidden, eps, threads);
}

void rotate_float32(const float* x, int64_t stride, const float* cos, const float* sin, float* y, int rows, int heads,
                    int dim, int threads) {
  turn(x, stride, cos, sin, y, rows, heads, dim, threads);
}

void rotate_bfloat16(const bfloat16* x, int64_t stride, const float* cos, const float* sin, bfloat16* y, int rows,
                     int heads, int dim, int threads) {
  turn(x, stride, cos, sin, y, rows, heads, dim, threads);
}

}  // extern "C"
