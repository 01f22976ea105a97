/* One pass: the float32 head of sums, each operation in one fixed order. */
#include "sums.h"

#include "float32.h"

enum { SMG_ONE = 1 << 16, SMG_LEAST_SHRINKAGE = 6554, SMG_MOST_SHRINKAGE = 58982 }; /* 1, 0.1, 0.9 */
#define SMG_NEVER (-79228162514264337593543950336.0f)                            /* -2^96, of a class without samples */
#define SMG_WIDE 12.5f /* 2 * 2.5^2: of 2.5 standard deviations */

/* A number of the triangle: whole until all integers are added up, real from there on. */
typedef union {
    int32_t whole;
    float real;
} number;

typedef struct {
    const smg_solve_f32_params *p;
    const int32_t *n, *m, *g;
    number *triangle, *centre, *rest; /* of working memory: the matrix, and vectors of a class */
    float *share;
    float limit;
    int32_t divisor, shrunk, temperature;
} solving;

/* What the mean of a class, rounded, leaves of its sums. */
static void take_class(solving *s, const int32_t *m, int32_t n) {
    for (int32_t i = 0; i < s->p->d; i++) {
        s->centre[i].whole = smg_centre(m[i], n);
        s->rest[i].whole = m[i] - n * s->centre[i].whole;
        s->share[i] = (float)s->rest[i].whole / (float)n;
    }
}

/* The products about the mean that was taken: integers, about the rounded mean. */
static void subtract_whole(solving *s, const int32_t *m) {
    number *row = s->triangle;
    for (int32_t i = 0; i < s->p->d; i++) {
        const int32_t centre = s->centre[i].whole, rest = s->rest[i].whole;
        for (int32_t j = 0; j <= i; j++)
            row[j].whole = smg_plus(row[j].whole, -smg_plus(smg_times(centre, m[j]), smg_times(rest, s->centre[j].whole)));
        row += i + 1;
    }
}

static void subtract_rest(solving *s) {
    number *row = s->triangle;
    for (int32_t i = 0; i < s->p->d; i++) {
        const float rest = (float)s->rest[i].whole;
        for (int32_t j = 0; j <= i; j++) row[j].real -= rest * s->share[j];
        row += i + 1;
    }
}

static void begin_triangle(solving *s) {
    for (int32_t i = 0; i < s->p->d * (s->p->d + 1) / 2; i++) s->triangle[i].whole = s->g[i];
}

static void make_real(solving *s) {
    for (int32_t i = 0; i < s->p->d * (s->p->d + 1) / 2; i++) s->triangle[i].real = (float)s->triangle[i].whole;
}

static float trace(const solving *s) {
    const number *row = s->triangle;
    float sum = row[0].real;
    for (int32_t i = 1; i < s->p->d; i++) {
        row += i;
        sum += row[i].real;
    }
    return sum;
}

/* The scatter within classes. */
static float scatter_within(solving *s) {
    begin_triangle(s);
    for (int32_t c = 0; c < s->p->classes; c++)
        if (s->n[c]) {
            take_class(s, s->m + c * s->p->d, s->n[c]);
            subtract_whole(s, s->m + c * s->p->d);
        }
    make_real(s);
    for (int32_t c = 0; c < s->p->classes; c++)
        if (s->n[c]) {
            take_class(s, s->m + c * s->p->d, s->n[c]);
            subtract_rest(s);
        }
    return trace(s);
}

static int32_t sum_of(const solving *s, int32_t i) {
    int32_t sum = 0;
    for (int32_t c = 0; c < s->p->classes; c++) sum += s->m[c * s->p->d + i];
    return sum;
}

static int32_t seen(const solving *s) {
    int32_t sum = 0;
    for (int32_t c = 0; c < s->p->classes; c++) sum += s->n[c];
    return sum;
}

/* The trace of the scatter of all samples; the triangle becomes zeros. */
static float spread_of_all(solving *s) {
    const int32_t n = seen(s);
    const int32_t *g = s->g;
    float sum = 0;
    for (int32_t i = 0; i < s->p->d; i++) {
        const int32_t m = sum_of(s, i), centre = smg_centre(m, n), rest = m - n * centre;
        const int32_t whole = smg_plus(g[i], -smg_plus(smg_times(centre, m), smg_times(rest, centre)));
        const float square = (float)whole - (float)rest * ((float)rest / (float)n);
        sum = i ? sum + square : square;
        g += i + 1;
    }
    for (int32_t i = 0; i < s->p->d * (s->p->d + 1) / 2; i++) s->triangle[i].real = 0;
    return sum;
}

/* sqrt(most / whole), at most 2^20 - 1. */
static uint32_t root_of(uint64_t most, uint64_t whole) {
    uint32_t root = 0;
    for (uint32_t bit = 1 << 19; bit; bit /= 2)
        if ((uint64_t)(root + bit) * (root + bit) * whole <= most) root += bit;
    return root;
}

/* sqrt(d / (d + freedom)) in 1/65536, between 0.1 and 0.9; 1 without any degree of freedom. */
static int32_t shrinkage(int32_t d, int32_t freedom) {
    if (freedom < 1) return SMG_ONE;
    const uint32_t root = root_of((uint64_t)(uint32_t)d << 32, (uint64_t)((int64_t)d + freedom));
    if (root < SMG_LEAST_SHRINKAGE) return SMG_LEAST_SHRINKAGE;
    return root > SMG_MOST_SHRINKAGE ? SMG_MOST_SHRINKAGE : (int32_t)root;
}

/* The squared distance from its class's mean within which a sample of a known class lies: so many standard deviations
 * of normal ones above its mean, both of the scatter. 0 where the scatter tells neither. */
static float limit_of(const solving *s, float sum, int32_t freedom) {
    const int32_t d = s->p->d;
    const number *row = s->triangle;
    float squares = 0;
    if (freedom < 1 || !(sum > 0)) return 0;
    for (int32_t i = 0; i < d; i++) {
        for (int32_t j = 0; j < i; j++) squares += 2.0f * (row[j].real * row[j].real);
        squares += row[i].real * row[i].real;
        row += i + 1;
    }
    const float once = 1.0f / (float)freedom, least = 1.0f / (float)d;
    float share = squares / (sum * sum) - once;
    share = share > least ? share : least; /* from all directions alike to a single one */
    share = share < 1.0f ? share : 1.0f;
    const uint32_t root = root_of((uint64_t)(SMG_WIDE * share * (1.0f + once) * 4294967296.0f), 1);
    return sum / (float)freedom * (1.0f + (float)root * 1.52587890625e-05f);
}

/* What scores are multiplied by, in 1/65536: k / (k + 48) with k samples a class, at most 1 - shrinkage. */
static int32_t temperature(int32_t shrunk, int32_t samples, int32_t classes) {
    const int32_t by_means = (int32_t)((uint32_t)samples * SMG_ONE / (uint32_t)(samples + 48 * classes));
    return shrunk == SMG_ONE || by_means < SMG_ONE - shrunk ? by_means : SMG_ONE - shrunk;
}

/* The covariance, times its divisor, shrunk towards a multiple of the identity. */
static void shrink(solving *s, int32_t present) {
    const int32_t d = s->p->d, samples = (int32_t)smg_samples(s->n, s->p->classes);
    float sum = scatter_within(s);
    s->divisor = samples - present;
    s->limit = limit_of(s, sum, s->divisor);
    s->shrunk = shrinkage(d, s->divisor);
    if (!(sum > 0)) { /* one sample a class, or all alike: the spread of everything, the same in all directions */
        sum = spread_of_all(s);
        s->divisor = sum > 0 ? samples : 1;
        s->shrunk = SMG_ONE;
        if (!(sum > 0)) sum = (float)d;
    }
    const float part = (float)s->shrunk * 1.52587890625e-05f, kept = 1.0f - part, added = part * (sum / (float)d);
    number *row = s->triangle;
    for (int32_t i = 0; i < d; i++) {
        for (int32_t j = 0; j <= i; j++) row[j].real = row[j].real * kept;
        row[i].real += added;
        row += i + 1;
    }
}

/* L D L^T in place, with 1 / D on the diagonal; 0 where a pivot is not above 0. */
static int factor(solving *s) {
    number *row = s->triangle;
    for (int32_t i = 0; i < s->p->d; i++) {
        const number *above = s->triangle;
        for (int32_t j = 0; j < i; j++) {
            float sum = row[j].real;
            for (int32_t k = 0; k < j; k++) sum -= row[k].real * above[k].real;
            row[j].real = sum;
            above += j + 1;
        }
        float pivot = row[i].real;
        above = s->triangle;
        for (int32_t k = 0; k < i; k++) {
            const float scaled = row[k].real * above[k].real;
            pivot -= row[k].real * scaled;
            row[k].real = scaled;
            above += k + 1;
        }
        if (!(pivot > 0)) return 0;
        row[i].real = 1.0f / pivot;
        row += i + 1;
    }
    return 1;
}

/* y of L D L^T y = z, in z's place. */
static void substitute(const solving *s, float *z) {
    const int32_t d = s->p->d;
    const number *row = s->triangle;
    for (int32_t i = 0; i < d; i++) {
        float sum = z[i];
        for (int32_t k = 0; k < i; k++) sum -= row[k].real * z[k];
        z[i] = sum;
        row += i + 1;
    }
    row = s->triangle;
    for (int32_t i = 0; i < d; i++) {
        z[i] *= row[i].real;
        row += i + 1;
    }
    for (int32_t i = d - 1; i > 0; i--) {
        row -= i + 1;
        for (int32_t k = 0; k < i; k++) z[k] -= row[k].real * z[i];
    }
}

/* A class's row, whose scores are those of its mean's distance; `middle` is the mean of all samples. */
static void solve_class(const solving *s, const int32_t *m, int32_t n, const float *middle, float *w, float *b) {
    const float sharp = (float)s->divisor * ((float)s->temperature * 1.52587890625e-05f);
    const float scaled = sharp / s->p->scale;
    float sum = 0;
    for (int32_t i = 0; i < s->p->d; i++) w[i] = (float)m[i] / (float)n - middle[i];
    substitute(s, w);
    for (int32_t i = 0; i < s->p->d; i++) {
        const float away = (float)m[i] / (float)n - middle[i], product = w[i] * (middle[i] + 0.5f * away);
        sum = i ? sum + product : product;
        w[i] = w[i] * scaled;
    }
    *b = -(sum * sharp);
}

void smg_solve_f32(const smg_solve_f32_params *p, float *w, float *b, float *limit, const int32_t *n, const int32_t *m,
                   const int32_t *g, int32_t *code, void *scratch) {
    number *const triangle = scratch, *const vectors = triangle + p->d * (p->d + 1) / 2;
    float *const last = (float *)(void *)(vectors + 2 * p->d);
    solving s = {p, n, m, g, triangle, vectors, vectors + p->d, last, 0, 0, 0, 0};
    int32_t present = 0;
    *code = SMG_SUMS_UNSOUND;
    if (!smg_sums_hold(n, m, g, p->classes, p->d)) return;
    for (int32_t c = 0; c < p->classes; c++) present += n[c] > 0;
    *code = SMG_SUMS_EMPTY;
    if (!present) return;
    shrink(&s, present);
    *code = SMG_SUMS_UNSOUND;
    if (!factor(&s)) return;
    *limit = s.limit;
    s.temperature = temperature(s.shrunk, seen(&s), present);
    for (int32_t i = 0; i < p->d; i++) last[i] = (float)sum_of(&s, i) / (float)seen(&s);
    for (int32_t c = 0; c < p->classes; c++, w += p->d, b++) {
        if (n[c]) {
            solve_class(&s, m + c * p->d, n[c], last, w, b);
        } else {
            for (int32_t i = 0; i < p->d; i++) w[i] = 0;
            *b = SMG_NEVER;
        }
    }
    *code = SMG_SUMS_DONE;
}
