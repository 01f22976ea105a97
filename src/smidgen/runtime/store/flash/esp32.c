/* Flash beside an ESP32, by ESP-IDF: a partition with sectors of 4 KB, 100,000 erases each.
 *
 * Name the component esp_partition as a requirement, and give the partition a line in partitions.csv:
 *     smidgen, data, 0x40, , 64K
 * With flash encryption, units are of 16 bytes: set UNIT so, and mark the partition `encrypted`. */
#include <esp_partition.h>

#include "smidgen_store.h"

#define SECTOR 4096u
#define UNIT 4u

static const esp_partition_t *partition(void) {
    static const esp_partition_t *found;
    if (!found) found = esp_partition_find_first(ESP_PARTITION_TYPE_DATA, (esp_partition_subtype_t)0x40, "smidgen");
    return found;
}

static int erase(void *context, uint32_t address) {
    (void)context;
    return !partition() || esp_partition_erase_range(partition(), address, SECTOR) != ESP_OK;
}

static int program(void *context, uint32_t address, const void *data, uint32_t bytes) {
    (void)context;
    return !partition() || esp_partition_write(partition(), address, data, bytes) != ESP_OK;
}

static int read(void *context, uint32_t address, void *data, uint32_t bytes) {
    (void)context;
    return !partition() || esp_partition_read(partition(), address, data, bytes) != ESP_OK;
}

extern const smg_flash chip_flash;
const smg_flash chip_flash = {erase, program, read, 0, SECTOR, UNIT};
