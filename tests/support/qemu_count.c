/* A plugin for QEMU that counts instructions; these prototypes are those of its plugin interface. */
#include <inttypes.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*call)(plugin_id id, struct qemu_plugin_tb *block));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, void (*call)(unsigned int cpu, void *data),
                                          int registers, void *data);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*call)(plugin_id id, void *data), void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);

int qemu_plugin_version = PLUGIN_VERSION;
int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments);

static uint64_t total;

static void executed(unsigned int cpu, void *data) {
    (void)cpu;
    total += (uintptr_t)data;
}

static void translated(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

static void ended(plugin_id id, void *data) {
    (void)id;
    FILE *file = fopen(data, "w");
    if (!file) return;
    fprintf(file, "%" PRIu64, total);
    fclose(file);
}

int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments) {
    (void)info, (void)count, (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, "instructions");
    return 0;
}
