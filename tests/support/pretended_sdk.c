/* A program that learns, and keeps it through the driver of a chip whose SDK is pretended: `kept FILE STEPS`.
 *
 * Prints what opening the store gave, then the state. */
#include "pretended_sdk.h"

#include "model.h"
#include "smidgen_store.h"

uint8_t pretended_chip[CHIP];
int pretended_disabled;

static int is_within(uint32_t offset, size_t size, size_t unit) {
    return offset % unit == 0 && size % unit == 0 && offset + size <= CHIP;
}

static void clear_bits(uint32_t offset, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i++) pretended_chip[offset + i] &= data[i];
}

uint32_t save_and_disable_interrupts(void) { return (uint32_t)(pretended_disabled++); }

void restore_interrupts(uint32_t status) { pretended_disabled = (int)status; }

void flash_range_erase(uint32_t offset, size_t count) {
    if (pretended_disabled && is_within(offset, count, FLASH_SECTOR_SIZE)) memset(pretended_chip + offset, 0xff, count);
}

void flash_range_program(uint32_t offset, const uint8_t *data, size_t count) {
    if (pretended_disabled && is_within(offset, count, FLASH_PAGE_SIZE)) clear_bits(offset, data, count);
}

const esp_partition_t *esp_partition_find_first(int type, esp_partition_subtype_t subtype, const char *label) {
    static const esp_partition_t found = {0x100000, PARTITION};
    return type == ESP_PARTITION_TYPE_DATA && subtype == 0x40 && !strcmp(label, "smidgen") ? &found : 0;
}

esp_err_t esp_partition_erase_range(const esp_partition_t *partition, size_t offset, size_t size) {
    if (offset % 4096 || size % 4096 || offset + size > partition->size) return ESP_FAIL;
    memset(pretended_chip + partition->address + offset, 0xff, size);
    return ESP_OK;
}

esp_err_t esp_partition_write(const esp_partition_t *partition, size_t offset, const void *data, size_t size) {
    if (offset + size > partition->size) return ESP_FAIL;
    clear_bits(partition->address + (uint32_t)offset, data, size);
    return ESP_OK;
}

esp_err_t esp_partition_read(const esp_partition_t *partition, size_t offset, void *data, size_t size) {
    if (offset + size > partition->size) return ESP_FAIL;
    memcpy(data, pretended_chip + partition->address + offset, size);
    return ESP_OK;
}

static int chip_file(const char *name, const char *mode) {
    FILE *file = fopen(name, mode);
    if (!file) return 1;
    const size_t moved = mode[0] == 'w' ? fwrite(pretended_chip, 1, CHIP, file) : fread(pretended_chip, 1, CHIP, file);
    return fclose(file) || moved != CHIP;
}

extern const smg_flash chip_flash;

int main(int count, char **arguments) {
    static smg_store store;
    if (count != 3 || chip_file(arguments[1], "rb")) return 2;
    const smg_region region = {"state", 0, 16};
    const smg_kept kept = {model_state(), MODEL_STATE_BYTES, MODEL_FINGERPRINT};
    model_init();
    const int found = smg_store_open(&store, &chip_flash, region, kept);
    if (!found && smg_store_load(&store)) return 3;
    for (int step = 0; step < arguments[2][0] - '0'; step++) {
        int8_t *input = model_input(0);
        for (int i = 0; i < MODEL_INPUT_0_BYTES; i++) input[i] = (int8_t)(i * (step + 3) % 251 - 125);
        model_train(step % 2, 0.05f);
        if (smg_store_save(&store)) return 4;
    }
    if (pretended_disabled || chip_file(arguments[1], "wb")) return 5;
    printf("%4d", found);
    return fwrite(model_state(), 1, MODEL_STATE_BYTES, stdout) != MODEL_STATE_BYTES;
}
