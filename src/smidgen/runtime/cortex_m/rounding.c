/* The passage from sums to an int8 gradient, eight elements at a time in packed bytes.
 *
 * An element is ((v + centre) / 2^k + random byte) / 2^8, with 2^k the step of a random byte: rounding down twice is
 * rounding down once. What is masked is 0 whatever it was, so masks are applied to packed bytes. Saturation is rare:
 * where the processor's sticky flag tells of it, the peak bits are collected once more, element by element. */
#include "columns.h"

/* What the loop over eights reads, at the offsets its assembly names. */
typedef struct {
    int32_t lift, k, centre;      /* sums are raised by `lift`; divided by 2^k, or multiplied by it */
    uint32_t first, second, next; /* the factors of smg_mix; what the key of a word lies above that of the one before */
    uint32_t peak_bits;
    int32_t to_step, multiplier_step; /* how far things go on after eight elements */
    uint32_t word_step;
    const int32_t *end; /* of the sums */
    const uint8_t *mask;
    int32_t mask_step;
    uint32_t word;
    const int32_t *sums, *multiplier;
    int8_t *to;
} eights;

/* Each of four registers on its own. */
#define EACH(op, a, b, c, d, rest) \
    op " " a ", " a rest "\n" op " " b ", " b rest "\n" op " " c ", " c rest "\n" op " " d ", " d rest "\n"
#define DEEPER(a, b, c, d) EACH("asr", a, b, c, d, ", r11")
/* Limited first, so that nothing is lost: what is limited saturates, and the flag tells. */
#define HIGHER(a, b, c, d)                                                                                \
    "ssat " a ", #23, " a "\n ssat " b ", #23, " b "\n ssat " c ", #23, " c "\n ssat " d ", #23, " d "\n" \
    EACH("lsl", a, b, c, d, ", r11")
#define MIX(x, key, first, second)                                        \
    "eor " x ", " key ", " key ", lsr #16\n mul " x ", " x ", " first "\n" \
    "eor " x ", " x ", " x ", lsr #15\n mul " x ", " x ", " second "\n"   \
    "eor " x ", " x ", " x ", lsr #16\n"
/* The random bytes of a word are added; the quotients, saturated, become the bytes of a. */
#define PACK(a, b, c, d, word)                                                                                      \
    "uxtab " a ", " a ", " word "\n uxtab " b ", " b ", " word ", ror #8\n"                                         \
    "uxtab " c ", " c ", " word ", ror #16\n uxtab " d ", " d ", " word ", ror #24\n"                               \
    "ssat " a ", #8, " a ", asr #8\n ssat " b ", #8, " b ", asr #8\n ssat " c ", #8, " c ", asr #8\n"               \
    "ssat " d ", #8, " d ", asr #8\n bfi " a ", " b ", #8, #8\n bfi " a ", " c ", #16, #8\n bfi " a ", " d ", #24, #8\n"
/* The bits of four bytes, those of negative ones inverted; r10 holds a one in each byte. */
#define BITS(to, a) \
    "and " to ", r10, " a ", lsr #7\n rsb " to ", " to ", " to ", lsl #8\n eor " to ", " to ", " a "\n"

/* r0 the eights, r1 sums, r2 multipliers, r3 where to, r12 the key of a word; r4 and r5 become the eight bytes.
 * One less, saturated, and one more: so -128 becomes -127. */
#define LOOP(MOVE)                                                                                            \
    "push {r4-r11, lr}\n mov r1, #0\n msr APSR_nzcvq, r1\n"                                                   \
    "ldr r12, [r0, #52]\n ldrd r1, r2, [r0, #56]\n ldr r3, [r0, #64]\n"                                       \
    "1: ldm r0, {r10, r11, lr}\n ldm r1!, {r4-r7}\n" EACH("lsl", "r4", "r5", "r6", "r7", ", r10")             \
    "ldrd r8, r9, [r2]\n smmlar r4, r4, r8, lr\n smmlar r5, r5, r9, lr\n"                                     \
    "ldrd r8, r9, [r2, #8]\n smmlar r6, r6, r8, lr\n smmlar r7, r7, r9, lr\n" MOVE("r4", "r5", "r6", "r7")    \
    "ldrd r8, r9, [r0, #12]\n" MIX("r11", "r12", "r8", "r9") PACK("r4", "r5", "r6", "r7", "r11")              \
    "ldm r0, {r10, r11, lr}\n ldm r1!, {r5-r8}\n" EACH("lsl", "r5", "r6", "r7", "r8", ", r10")                \
    "ldrd r9, r10, [r2, #16]\n smmlar r5, r5, r9, lr\n smmlar r6, r6, r10, lr\n"                              \
    "ldrd r9, r10, [r2, #24]\n smmlar r7, r7, r9, lr\n smmlar r8, r8, r10, lr\n"                              \
    MOVE("r5", "r6", "r7", "r8") "ldrd r9, r10, [r0, #12]\n ldr r11, [r0, #20]\n add r11, r11, r12\n"         \
    MIX("r11", "r11", "r9", "r10") PACK("r5", "r6", "r7", "r8", "r11")                                        \
    "ldrd r6, r7, [r0, #44]\n ldrb r8, [r6]\n add r6, r6, r7\n str r6, [r0, #44]\n cmp r8, #255\n bne 3f\n"  \
    "2: mov r10, #0x01010101\n" BITS("r6", "r4") BITS("r7", "r5") "orr r6, r6, r7\n"                          \
    "qsub8 r4, r4, r10\n qadd8 r4, r4, r10\n qsub8 r5, r5, r10\n qadd8 r5, r5, r10\n strd r4, r5, [r3]\n"    \
    "add r5, r0, #24\n ldm r5, {r7-r11}\n orr r7, r7, r6\n str r7, [r0, #24]\n"                              \
    "add r3, r3, r8\n add r2, r2, r9\n add r12, r12, r10\n cmp r1, r11\n bne 1b\n b 4f\n"                   \
    "3: mov r9, #0\n lsl r8, r8, #16\n msr APSR_g, r8\n sel r4, r4, r9\n lsr r8, r8, #4\n msr APSR_g, r8\n"  \
    "sel r5, r5, r9\n b 2b\n"                                                                                \
    "4: mrs r0, APSR\n pop {r4-r11, lr}\n"

/* Round all; gives whether anything was saturated. */
static int run(eights *all, int higher) {
    register uint32_t r0 __asm__("r0") = (uint32_t)(uintptr_t)all;
    if (higher)
        __asm__ volatile(LOOP(HIGHER) : "+r"(r0) : : "r1", "r2", "r3", "r12", "cc", "memory");
    else
        __asm__ volatile(LOOP(DEEPER) : "+r"(r0) : : "r1", "r2", "r3", "r12", "cc", "memory");
    return (int)(r0 >> 27 & 1);
}

/* One element before saturation, as the contract says it. */
static inline int32_t quotient(const smg_rounding *r, int32_t sum, int32_t c, int32_t index, const uint8_t *mask) {
    const int32_t most = r->raise ? 1 << 20 : INT32_MAX; /* what is shifted up is limited, so that nothing is lost */
    const int32_t octet = (int32_t)(smg_word(r->key, (uint32_t)index / 4) >> (8 * (index & 3)) & 255);
    if (mask && !(mask[index >> 3] >> (index & 7) & 1)) return 0;
    const int32_t v = smg_high_mul(smg_shift_left(sum, r->lift), r->multiplier[r->factors > 1 ? c : 0]);
    const int32_t moved = smg_shift_left(smg_clamp(v >> r->deep, -most, most), r->raise);
    return (moved + r->centre + ((octet << r->shift) >> 8)) >> r->shift;
}

static void round_some(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index,
                       const uint8_t *mask, int8_t *to) {
    for (int32_t i = 0; i < count; i++) {
        const int32_t u = quotient(r, sums[i], c + i, index + i, mask);
        r->peak_bits |= (uint32_t)(u ^ -(u < 0));
        to[i] = (int8_t)smg_clamp(u, -127, 127);
    }
}

/* Whether the loop is for such a tensor: what it is raised or divided by leaves all bits in their registers. */
static inline int regular(const smg_rounding *r) { return r->raise == 0 && r->deep < 8 && r->lift > 1; }

/* `count` eights whose channels go on by `c_step`, 0 or 8, and whose indices by `step`. */
static void round_eights(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t c_step, int32_t index,
                         int32_t step, const uint8_t *mask, int8_t *to) {
    static const uint8_t everything = 255;
    const int32_t below = r->shift - 8, k = below + r->deep, single = r->factors < 2, *m = r->multiplier;
    const int32_t same[SMG_COLUMNS] = {m[0], m[0], m[0], m[0], m[0], m[0], m[0], m[0]}, golden = (int32_t)0x9E3779B9u;
    eights all = {r->lift + 1, below < 0 ? -below : k, r->centre << r->deep,
                  0x7FEB352Du, 0x846CA68Bu, (uint32_t)golden,
                  0, step, single ? 0 : 4 * c_step,
                  (uint32_t)golden * (uint32_t)(step / 4), sums + count * SMG_COLUMNS,
                  mask ? mask + index / 8 : &everything, mask ? step / 8 : 0,
                  r->key + (uint32_t)golden * (uint32_t)(index / 4),
                  sums, single ? same : m + c, to};
    const int saturated = run(&all, below < 0);
    const uint32_t two = all.peak_bits | all.peak_bits >> 16;
    if (!saturated) r->peak_bits |= (two | two >> 8) & 255;
    for (int32_t i = 0; saturated && i < count * SMG_COLUMNS; i++) {
        const int32_t eight = i / SMG_COLUMNS, at = i % SMG_COLUMNS;
        const int32_t u = quotient(r, sums[i], c + eight * c_step + at, index + eight * step + at, mask);
        r->peak_bits |= (uint32_t)(u ^ -(u < 0));
    }
}

void smg_round_columns(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, int32_t step,
                       const uint8_t *mask, int8_t *to) {
    if (regular(r)) {
        if (count) round_eights(r, sums, count, c, 0, index, step, mask, to);
    } else {
        for (int32_t i = 0; i < count; i++)
            round_some(r, sums + i * SMG_COLUMNS, SMG_COLUMNS, c, index + i * step, mask, to + i * step);
    }
}

void smg_round_sums(smg_rounding *r, const int32_t *sums, int32_t count, int32_t c, int32_t index, const uint8_t *mask,
                    int8_t *to) {
    const int32_t ahead = regular(r) ? smg_min(-index & 7, count) : count, eight = (count - ahead) / SMG_COLUMNS;
    const int32_t done = ahead + eight * SMG_COLUMNS;
    round_some(r, sums, ahead, c, index, mask, to);
    if (eight)
        round_eights(r, sums + ahead, eight, c + ahead, SMG_COLUMNS, index + ahead, SMG_COLUMNS, mask, to + ahead);
    round_some(r, sums + done, count - done, c + done, index + done, mask, to + done);
}
