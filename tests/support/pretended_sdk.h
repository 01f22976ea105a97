/* What drivers of flash call of two SDKs, over an array that outlives the program in a file. */
#ifndef PRETENDED_SDK_H
#define PRETENDED_SDK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { CHIP = 2 * 1024 * 1024, PARTITION = 64 * 1024 };

extern uint8_t pretended_chip[CHIP];
extern int pretended_disabled; /* interrupts */

/* The Pico SDK's. */
#define FLASH_SECTOR_SIZE (1u << 12)
#define FLASH_PAGE_SIZE (1u << 8)
#define XIP_BASE ((uintptr_t)pretended_chip)

uint32_t save_and_disable_interrupts(void);
void restore_interrupts(uint32_t status);
void flash_range_erase(uint32_t offset, size_t count);
void flash_range_program(uint32_t offset, const uint8_t *data, size_t count);

/* ESP-IDF's. */
typedef int esp_err_t;
typedef int esp_partition_subtype_t;
typedef struct {
    uint32_t address, size;
} esp_partition_t;
enum { ESP_OK = 0, ESP_FAIL = -1, ESP_PARTITION_TYPE_DATA = 1 };

const esp_partition_t *esp_partition_find_first(int type, esp_partition_subtype_t subtype, const char *label);
esp_err_t esp_partition_erase_range(const esp_partition_t *partition, size_t offset, size_t size);
esp_err_t esp_partition_write(const esp_partition_t *partition, size_t offset, const void *data, size_t size);
esp_err_t esp_partition_read(const esp_partition_t *partition, size_t offset, void *data, size_t size);

#endif
