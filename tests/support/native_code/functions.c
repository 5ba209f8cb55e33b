// C functions for the tests of hostcall.native.
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

// A function of one argument of each type that C and XLA share.
#define NEXT(name, type)                                            \
  void next_##name(const type* x, type* y, int64_t n) {             \
    for (int64_t i = 0; i < n; ++i) y[i] = (type)(x[i] + (type)1); \
  }
NEXT(int8, int8_t)
NEXT(int16, int16_t)
NEXT(int32, int32_t)
NEXT(int64, int64_t)
NEXT(uint8, uint8_t)
NEXT(uint16, uint16_t)
NEXT(uint32, uint32_t)
NEXT(uint64, uint64_t)
NEXT(float32, float)
NEXT(float64, double)

void invert(const _Bool* x, _Bool* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = !x[i];
}

// Of any type of so many bytes.
#define REVERSE(size)                                                             \
  void reverse_##size(const void* x, void* y, int64_t n) {                        \
    for (int64_t i = 0; i < n; ++i) {                                             \
      memcpy((char*)y + i * size, (const char*)x + (n - 1 - i) * size, size); \
    }                                                                             \
  }
REVERSE(1)
REVERSE(2)
REVERSE(4)
REVERSE(8)
REVERSE(16)

void sum_and_mean(const double* x, double* sum, double* mean, int64_t n) {
  *sum = 0.0;
  for (int64_t i = 0; i < n; ++i) *sum += x[i];
  *mean = *sum / (double)n;
}

void scale(const float* x, const float* factor, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * *factor;
}

void scale_one(const float* x, const float* factor, float* y) { *y = *x * *factor; }

// The matrix product, and what sizes it was given.
void multiply(const double* a, const double* b, double* c, int64_t* sizes, int64_t rows,
              int64_t inner, int64_t again, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      c[i * columns + j] = 0.0;
      for (int64_t k = 0; k < inner; ++k) c[i * columns + j] += a[i * inner + k] * b[k * columns + j];
    }
  }
  const int64_t all[4] = {rows, inner, again, columns};
  memcpy(sizes, all, sizeof(all));
}

void swap_outer(const int32_t* x, int32_t* y, int64_t a, int64_t b, int64_t c) {
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) {
      for (int64_t k = 0; k < c; ++k) y[(k * b + j) * a + i] = x[(i * b + j) * c + k];
    }
  }
}

void answer(int32_t* y) { *y = 42; }

void are_null(const void* x, void* y, int32_t* null, int64_t rows, int64_t columns) {
  null[0] = x == NULL;
  null[1] = y == NULL;
  null[2] = (int32_t)rows;
  null[3] = (int32_t)columns;
}

int32_t root(const int32_t* x, int32_t* y) {
  if (*x < 0) return *x;
  for (*y = 0; (*y + 1) * (*y + 1) <= *x;) ++*y;
  return 0;
}

double of_double(double x) { return x; }

// The order of calls.
static int32_t noted[64];
static int32_t notes = 0;
void note(const int32_t* x) { noted[notes++ % 64] = *x; }
int32_t take_notes(int32_t* out) {
  const int32_t count = notes;
  memcpy(out, noted, sizeof(int32_t) * (size_t)count);
  notes = 0;
  return count;
}

#define P10(p) p##0, p##1, p##2, p##3, p##4, p##5, p##6, p##7, p##8, p##9
#define X(n) const int32_t* n
#define X10(p) X(p##0), X(p##1), X(p##2), X(p##3), X(p##4), X(p##5), X(p##6), X(p##7), X(p##8), X(p##9)
void list_31(X10(a), X10(b), X10(c), X(d), int32_t* y) {
  const int32_t* all[31] = {P10(a), P10(b), P10(c), d};
  for (int i = 0; i < 31; ++i) y[i] = *all[i];
}

// Several threads at once, without Python's lock. Whoever waits gives up after so many turns.
static const int64_t kTurns = 20 * 1000 * 1000;
static atomic_int inside, open, passed;

static int32_t wait_for(atomic_int* count, int32_t wanted) {
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    if (atomic_load(count) >= wanted) return 1;
    sched_yield();
  }
  return 0;
}

void reset_gate(void) {
  atomic_store(&inside, 0);
  atomic_store(&open, 0);
  atomic_store(&passed, 0);
}

// Waits for the gate to open, and goes through.
int32_t pass_gate(const int32_t* x, int32_t* y) {
  atomic_fetch_add(&inside, 1);
  if (!wait_for(&open, 1)) return 1;
  atomic_fetch_add(&passed, 1);
  *y = *x + 1;
  return 0;
}

int32_t wait_for_all_inside(int32_t count) { return wait_for(&inside, count); }

int32_t open_gate_and_wait(int32_t count) {
  atomic_store(&open, 1);
  return wait_for(&passed, count);
}
