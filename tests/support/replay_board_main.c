/* The checks of a ring on an emulated board: answers with the line of the check that failed, or 0, and the cuts. */
#include "board_answers.h"
#include "replay_checks.h"

int main(void) {
    static const part small_pages = {512, 64, 4, 10, 212, 0};
    const int32_t failed = cut_at_random(&small_pages, ROUNDS, 5), done = cuts;
    const int32_t refused = wear_and_refuse(&small_pages);
    const int32_t changed = refuses_what_changed(&small_pages, 0) + refuses_what_changed(&small_pages, 1);
    const int32_t forgot = remembers(&small_pages), unfair = shares(&small_pages);
    return answer(failed, done, refused ? refused : changed ? changed : forgot ? forgot : unfair);
}
