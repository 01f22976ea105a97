/* Runs the exact search on a problem from standard input and prints its outcome and the offsets. */
#include <stdint.h>
#include <stdio.h>

enum { MOST = 1024 };

int smg_pack(int n, const int32_t *first, const int32_t *end, const int32_t *size, const int32_t *ground,
             int sections, int32_t capacity, int64_t limit, int64_t *decisions, int32_t *offsets);

int main(void) {
    static int32_t first[MOST], end[MOST], size[MOST], ground[MOST], offsets[MOST];
    int64_t decisions;
    int n, sections, capacity, limit;
    if (scanf("%d %d %d %d", &n, &sections, &capacity, &limit) != 4 || n > MOST) return 1;
    for (int i = 0; i < n; i++)
        if (scanf("%d %d %d %d", &first[i], &end[i], &size[i], &ground[i]) != 4) return 1;
    printf("%d", smg_pack(n, first, end, size, ground, sections, capacity, limit, &decisions, offsets));
    for (int i = 0; i < n; i++) printf(" %d", offsets[i]);
    return 0;
}
