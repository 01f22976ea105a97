/* The checks of a store on an emulated board: answers with the line of the check that failed, or 0, and the cuts. */
#define BYTES 0
#include "board_answers.h"
#include "store_checks.h"

int main(void) {
    static const part small_pages = {512, 64, 0, 6, 0};
    const int32_t failed = cut_all(&small_pages, SAVES, WAVERING), done = cuts;
    const int32_t lost = cut_at_random(&small_pages, 20, 3, 0);
    const int32_t taken = damage_anywhere(&small_pages, 20);
    return answer(failed, done, lost ? lost : taken ? taken : room_behind(&small_pages));
}
