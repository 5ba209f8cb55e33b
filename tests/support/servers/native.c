// Native code of the models that are served.
#include <math.h>
#include <stdint.h>

void plus_one(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;
}

// Of rows.
void sums(const float* x, float* y, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    y[i] = 0;
    for (int64_t j = 0; j < columns; ++j) y[i] += x[i * columns + j];
  }
}

int32_t root(const float* x, float* y) {
  if (*x < 0) return 7;
  *y = sqrtf(*x);
  return 0;
}

// What it has been called with, as digits: it tells the order of calls.
static float digits = 0;
void append(const float* x, float* y) { *y = digits = fmodf(digits * 10 + *x, 10000); }
