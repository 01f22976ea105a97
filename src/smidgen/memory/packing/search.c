/* Exact packing by branch and bound: can all items lie below a capacity, and where?
 *
 * The search looks only for packings of least total offset, in which no item can move down. It takes an item that
 * nothing can slip under any more and decides: it lies at its floor, or it is held above it. A held item can only be
 * lifted by an item alive with it that reaches into the room it left, which gives it a new floor, or none: a dead end.
 * Every dead end is explained by the decisions that caused it, and the search jumps back to the latest of those
 * (conflict-directed backjumping); without it, decisions about unrelated times are tried over and over.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { IMPOSSIBLE = 0, FOUND = 1, STOPPED = 2, NO_MEMORY = 3, FAR = INT32_MAX };

/* The items of a part of the problem that are not placed, by ascending floor; columns, so that loops vectorise. */
typedef struct {
    int32_t *id, *first, *end, *size, *floor, *held;
    int count;
} Part;

/* An item was placed (`under` < 0), or its floor was lifted from `before` because it cannot lie below item `under`. */
typedef struct {
    int32_t item, before, under, previous; /* previous: the event that lifted the same item before */
} Event;

/* An item that a branch has held, and why it cannot lie at its floor: a set of placed and held items. */
typedef struct Step {
    struct Step *previous;
    int32_t item;
    uint64_t *reason;
} Step;

typedef struct {
    int n, sections;
    size_t words; /* of a set of items */
    int32_t capacity;
    int64_t nodes, limit;
    const int32_t *first, *end, *size, *ground; /* ground: what an item cannot lie below in any case */
    int32_t *floor;    /* of items not placed; the offset of those that are */
    int32_t *low;      /* floors that take account of what must lift held items */
    int32_t *placed;   /* booleans */
    int32_t *latest;   /* the last event that lifted an item */
    int32_t *asked;    /* the highest `low` that the explanation under way has accounted for */
    int32_t *load;     /* of each section */
    uint64_t *reason;  /* why the last dead end is one */
    Event *trail;
    int events;
    unsigned char *arena;
    size_t used, room, margin;
} Search;

static void add(uint64_t *set, int item) { set[item / 64] |= (uint64_t)1 << (item % 64); }

static void drop(uint64_t *set, int item) { set[item / 64] &= ~((uint64_t)1 << (item % 64)); }

static int has(const uint64_t *set, int item) { return (int)(set[item / 64] >> (item % 64) & 1); }

/* Memory until `used` is set back; branch keeps `margin` bytes free. */
static void *take(Search *s, size_t bytes) {
    void *memory = s->arena + s->used;
    s->used += (bytes + 7) / 8 * 8;
    return memory;
}

static int32_t *take_numbers(Search *s, int count) { return take(s, (size_t)count * sizeof(int32_t)); }

static Part take_part(Search *s, int count) {
    int32_t *p = take_numbers(s, 6 * count);
    Part part = {p, p + count, p + 2 * count, p + 3 * count, p + 4 * count, p + 5 * count, count};
    return part;
}

static void copy(Part *to, int at, const Part *from, int i) {
    to->id[at] = from->id[i];
    to->first[at] = from->first[i];
    to->end[at] = from->end[i];
    to->size[at] = from->size[i];
    to->floor[at] = from->floor[i];
    to->held[at] = from->held[i];
}

/* Explain why the item lies at `at` or above: by the items under it, and why it is not under those. */
static void explain_floor(Search *s, int item, int32_t at) {
    int event = s->latest[item];
    while (at > s->ground[item]) {
        while (s->trail[event].before >= at) event = s->trail[event].previous;
        int under = s->trail[event].under;
        add(s->reason, under);
        at = s->floor[under] - s->size[item] + 1;
        event = s->trail[event].previous;
    }
}

/* Explain low[item] >= at. A held item is lifted by something that reaches into the room it left: no item placed
 * does, and each of the others either lies above that room or lifts it far enough. That two items may explain each
 * other is sound: what lifts an item lies below it, so the lowest of them needs an explanation from outside. */
static void explain_low(Search *s, int item, int32_t at) {
    if (s->asked[item] >= at) return;
    s->asked[item] = at;
    if (at <= s->floor[item]) {
        explain_floor(s, item, at);
        return;
    }
    add(s->reason, item);
    int32_t top = s->floor[item] + s->size[item];
    for (int c = 0; c < s->n; c++) {
        if (c == item || s->first[c] >= s->end[item] || s->first[item] >= s->end[c]) continue;
        if (s->placed[c]) {
            add(s->reason, c);
            continue;
        }
        int32_t enough = at == FAR ? FAR : at - s->size[c];
        int above = s->low[c] >= top && (top < enough || s->low[c] < enough);
        explain_low(s, c, above ? top : enough);
    }
}

/* The lowest offset to which an item that is not held can lift held item b. */
static int32_t lifted(const Part *p, int b) {
    int32_t first = p->first[b], end = p->end[b], top = p->floor[b] + p->size[b], best = FAR;
    for (int c = 0; c < p->count; c++) {
        int lifts = !p->held[c] & (p->first[c] < end) & (first < p->end[c]) & (p->floor[c] < top);
        int32_t to = lifts ? p->floor[c] + p->size[c] : FAR;
        best = to < best ? to : best;
    }
    return best;
}

/* Fill `low` (by place in p) and list the held items in `held` by ascending low; -1 where one cannot be lifted,
 * else their count. Held items lift each other in the order of Dijkstra's shortest paths. */
static int lift(Search *s, const Part *p, int32_t *low, int32_t *held) {
    int count = 0;
    for (int i = 0; i < p->count; i++) {
        low[i] = p->held[i] ? lifted(p, i) : p->floor[i];
        s->low[p->id[i]] = low[i];
        if (p->held[i]) held[count++] = i;
    }
    for (int q = 0; q < count; q++) {
        int least = q;
        for (int r = q + 1; r < count; r++)
            if (low[held[r]] < low[held[least]]) least = r;
        int b = held[least];
        held[least] = held[q];
        held[q] = b;
        if (low[b] == FAR) {
            explain_low(s, p->id[b], FAR);
            return -1;
        }
        for (int r = q + 1; r < count; r++) {
            int c = held[r];
            int together = p->first[b] < p->end[c] && p->first[c] < p->end[b];
            if (together && low[b] < p->floor[c] + p->size[c] && low[b] + p->size[b] < low[c])
                s->low[p->id[c]] = low[c] = low[b] + p->size[b];
        }
    }
    return count;
}

static void explain_load(Search *s, const Part *p, const int32_t *low, int32_t above, int section) {
    int32_t at = s->capacity - s->load[section] + 1;
    for (int i = 0; i < p->count; i++)
        if (low[i] >= above && p->first[i] <= section && section < p->end[i]) explain_low(s, p->id[i], at);
}

/* Whether the items may still fit: in each section, what cannot lie below x must fit between x and the capacity,
 * for every x (the preemptive bound of one machine with release dates). */
static int may_fit(Search *s, const Part *p, int32_t *low, int32_t *held) {
    memset(s->reason, 0, s->words * sizeof(uint64_t));
    memset(s->asked, 0, (size_t)s->n * sizeof(int32_t));
    int h = lift(s, p, low, held) - 1, i = p->count - 1;
    if (h < -1) return 0;
    memset(s->load, 0, (size_t)s->sections * sizeof(int32_t));
    for (;;) { /* by descending low */
        while (i >= 0 && p->held[i]) i--;
        if (h < 0 && i < 0) return 1;
        int item = h >= 0 && (i < 0 || low[held[h]] >= low[i]) ? held[h--] : i--;
        int32_t most = 0, size = p->size[item];
        for (int t = p->first[item]; t < p->end[item]; t++) {
            s->load[t] += size;
            most = s->load[t] > most ? s->load[t] : most;
        }
        if (most > s->capacity - low[item]) {
            int t = p->first[item];
            while (s->load[t] != most) t++;
            explain_load(s, p, low, low[item], t);
            return 0;
        }
    }
}

/* The item to decide on: of those at the lowest floor, the first in the order the caller gave. */
static int pick(const Part *p) {
    int best = 0;
    while (p->held[best]) best++;
    for (int i = best + 1; i < p->count && p->floor[i] == p->floor[best]; i++)
        if (!p->held[i] && p->id[i] < p->id[best]) best = i;
    return best;
}

/* A held item that is the same but for its id, or -1. Of equals, the one with the lower id lies lower. */
static int twin(const Part *p, int b) {
    for (int i = 0; i < p->count; i++)
        if (p->held[i] && p->id[i] < p->id[b] && p->size[i] == p->size[b] && p->first[i] == p->first[b] &&
            p->end[i] == p->end[b])
            return p->id[i];
    return -1;
}

/* Item b lies at its floor: `rest` is what remains, with all that is alive with b lifted to its top. */
static void place(Search *s, const Part *p, int b, Part *rest, int32_t *raised) {
    int32_t first = p->first[b], end = p->end[b], top = p->floor[b] + p->size[b];
    Event placing = {p->id[b], 0, -1, 0};
    s->trail[s->events++] = placing;
    s->placed[p->id[b]] = 1;
    int at = 0, count = 0, i = 0;
    for (; i < p->count && p->floor[i] <= top; i++) {
        if (i == b) continue;
        if (p->first[i] < end && first < p->end[i] && p->floor[i] < top)
            raised[count++] = i;
        else
            copy(rest, at++, p, i);
    }
    for (int r = 0; r < count; r++) {
        int item = p->id[raised[r]];
        copy(rest, at, p, raised[r]);
        rest->floor[at] = top;
        rest->held[at++] = 0;
        Event lifting = {item, s->floor[item], p->id[b], s->latest[item]};
        s->latest[item] = s->events;
        s->trail[s->events++] = lifting;
        s->floor[item] = top;
    }
    for (; i < p->count; i++)
        if (i != b) copy(rest, at++, p, i);
}

static void undo(Search *s, int events) {
    while (s->events > events) {
        const Event *e = &s->trail[--s->events];
        if (e->under < 0) {
            s->placed[e->item] = 0;
        } else {
            s->floor[e->item] = e->before;
            s->latest[e->item] = e->previous;
        }
    }
}

static int solve(Search *s, const Part *p);

/* Take back the steps of a branch whose last one met a dead end: those that had no part in it explain nothing. */
static void resolve(Search *s, const Step *step) {
    for (; step; step = step->previous) {
        if (!has(s->reason, step->item)) continue;
        drop(s->reason, step->item);
        for (size_t w = 0; w < s->words; w++) s->reason[w] |= step->reason[w];
    }
}

/* Solve a part that no section divides: place the item picked or, where that fails, hold it and pick another. */
static int branch(Search *s, Part *p) {
    int32_t *low = take_numbers(s, p->count), *scratch = take_numbers(s, p->count);
    Part rest = take_part(s, p->count - 1);
    Step *steps = NULL;
    int events = s->events;
    for (;;) {
        if (s->nodes >= s->limit || s->used + s->margin > s->room) return STOPPED;
        s->nodes++;
        if (!may_fit(s, p, low, scratch)) break;
        int b = pick(p), item = p->id[b], equal = twin(p, b);
        Step *step = take(s, sizeof *step);
        step->previous = steps;
        step->item = item;
        step->reason = take(s, s->words * sizeof(uint64_t));
        if (equal >= 0) {
            add(s->reason, equal);
        } else {
            size_t used = s->used;
            place(s, p, b, &rest, scratch);
            int result = solve(s, &rest);
            if (result != IMPOSSIBLE) return result;
            s->used = used;
            undo(s, events);
            if (!has(s->reason, item)) break;
            drop(s->reason, item);
        }
        explain_floor(s, item, p->floor[b]);
        memcpy(step->reason, s->reason, s->words * sizeof(uint64_t));
        steps = step;
        p->held[b] = 1;
    }
    resolve(s, steps);
    return IMPOSSIBLE;
}

/* Number the runs of sections that no item joins; returns how many there are. */
static int divide(const Part *p, int sections, int32_t *run) {
    memset(run, 0, ((size_t)sections + 1) * sizeof(int32_t));
    for (int i = 0; i < p->count; i++) {
        run[p->first[i] + 1]++;
        run[p->end[i]]--;
    }
    int runs = 0;
    for (int t = 0, joined = 0; t < sections; t++) {
        joined += run[t];
        if (!joined) runs++;
        run[t] = runs - 1;
    }
    return runs;
}

/* Solve the parts that share no section one by one, the smallest first: one dead end is the end of all. */
static int solve(Search *s, const Part *p) {
    int32_t *run = take_numbers(s, s->sections + 1);
    int runs = divide(p, s->sections, run), result = FOUND;
    int32_t *counts = take_numbers(s, runs);
    memset(counts, 0, (size_t)runs * sizeof(int32_t));
    for (int i = 0; i < p->count; i++) counts[run[p->first[i]]]++;
    while (result == FOUND) {
        int least = -1;
        for (int r = 0; r < runs; r++)
            if (counts[r] && (least < 0 || counts[r] < counts[least])) least = r;
        if (least < 0) break;
        size_t used = s->used;
        Part part = take_part(s, counts[least]);
        for (int i = 0, at = 0; i < p->count; i++)
            if (run[p->first[i]] == least) copy(&part, at++, p, i);
        result = branch(s, &part);
        s->used = used;
        counts[least] = 0;
    }
    return result;
}

static int start(Search *s) {
    Part all = take_part(s, s->n);
    for (int i = 0; i < s->n; i++) {
        int at = i;
        for (; at > 0 && all.floor[at - 1] > s->ground[i]; at--) copy(&all, at, &all, at - 1);
        all.id[at] = i;
        all.first[at] = s->first[i];
        all.end[at] = s->end[i];
        all.size[at] = s->size[i];
        all.floor[at] = s->floor[i] = s->ground[i];
        all.held[at] = 0;
        s->latest[i] = -1;
    }
    return solve(s, &all);
}

/* Place n items, alive over sections [first, end), at `ground` or above and below the capacity: 1 and their offsets,
 * 0 where that is impossible, 2 after `limit` decisions, 3 where the machine has no memory for the search. `decisions`
 * becomes the number made. Items should be in the order in which to try them. Sizes may add up to 2^31 - 1. */
int smg_pack(int n, const int32_t *first, const int32_t *end, const int32_t *size, const int32_t *ground,
             int sections, int32_t capacity, int64_t limit, int64_t *decisions, int32_t *offsets) {
    Search s = {0};
    size_t items = (size_t)n, numbers = 16 * items + 2 * ((size_t)sections + 2);
    s.n = n, s.sections = sections, s.capacity = capacity, s.limit = limit;
    s.first = first, s.end = end, s.size = size, s.ground = ground, s.floor = offsets;
    s.words = (items + 63) / 64;
    s.margin = 2 * (numbers * sizeof(int32_t) + s.words * sizeof(uint64_t) + sizeof(Step) + 64);
    s.room = (items + 8) * s.margin;
    s.arena = malloc(s.room);
    s.trail = malloc((items * items + items + 1) * sizeof(Event));
    s.reason = calloc(s.words + 1, sizeof(uint64_t));
    int32_t *columns = calloc(4 * items + (size_t)sections + 1, sizeof(int32_t));
    int result = NO_MEMORY;
    if (s.arena && s.trail && s.reason && columns) {
        s.low = columns, s.placed = columns + n, s.latest = columns + 2 * n, s.asked = columns + 3 * n;
        s.load = columns + 4 * n;
        result = start(&s);
    }
    free(s.arena);
    free(s.trail);
    free(s.reason);
    free(columns);
    *decisions = s.nodes;
    return result;
}
