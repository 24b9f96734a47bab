/* An nbdkit plugin in the place of that for VMware's library: it takes the same parameters and serves a file for each snapshot,
 * FOLDER/disk of the machine as it is and FOLDER/snapshot-N of a snapshot. The importer starts it where it finds it
 * (/opt/testing/libvddk-test-plugin.so). */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define FOLDER "/opt/testing"

static char *snapshot;
static char *password;
static int has_file;

/* nbdkit -D vddk.datapath and vddk.stats set these. */
NBDKIT_DLL_PUBLIC int vddk_debug_datapath = 1;
NBDKIT_DLL_PUBLIC int vddk_debug_stats = 0;

static int test_config(const char *key, const char *value) {
  static const char *const ignored[] = {"libdir", "server",     "user",  "thumbprint",
                                        "vm",     "transports", "config"};
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
    if (strcmp(key, ignored[i]) == 0)
      return 0;
  if (strcmp(key, "file") == 0) {
    has_file = 1;
    return 0;
  }
  if (strcmp(key, "password") == 0)
    return nbdkit_read_password(value, &password);
  if (strcmp(key, "snapshot") == 0) {
    snapshot = strdup(value);
    return snapshot ? 0 : -1;
  }
  nbdkit_error("unknown parameter '%s'", key);
  return -1;
}

static int test_config_complete(void) {
  if (!has_file || !password || strcmp(password, "hush & <hush>") != 0) {
    nbdkit_error("file and the right password are needed");
    return -1;
  }
  return 0;
}

static void *test_open(int readonly) {
  char path[256];
  int *file = malloc(sizeof *file);
  if (!file)
    return NULL;
  snprintf(path, sizeof path, "%s/%s", FOLDER, snapshot ? snapshot : "disk");
  *file = open(path, O_RDONLY | O_CLOEXEC);
  if (*file < 0) {
    nbdkit_error("cannot open %s: %m", path);
    free(file);
    return NULL;
  }
  nbdkit_debug("VMware VixDiskLib (8.0.2) Release build-1");
  nbdkit_debug("Opened 'vpxa-nfcssl://[ds] m/d.vmdk@esx.example:902'");
  return file;
}

static void test_close(void *handle) {
  close(*(int *)handle);
  free(handle);
}

static int64_t test_get_size(void *handle) {
  struct stat found;
  if (fstat(*(int *)handle, &found) < 0) {
    nbdkit_error("fstat: %m");
    return -1;
  }
  return found.st_size;
}

static int test_pread(void *handle, void *buffer, uint32_t count, uint64_t offset, uint32_t flags) {
  char *to = buffer;
  while (count > 0) {
    ssize_t done = pread(*(int *)handle, to, count, offset);
    if (done <= 0) {
      nbdkit_error("pread: %m");
      return -1;
    }
    to += done;
    count -= done;
    offset += done;
  }
  return 0;
}

static int test_can_multi_conn(void *handle) { return 1; }

static struct nbdkit_plugin plugin = {
    .name = "vddk",
    .config = test_config,
    .config_complete = test_config_complete,
    .open = test_open,
    .close = test_close,
    .get_size = test_get_size,
    .pread = test_pread,
    .can_multi_conn = test_can_multi_conn,
    .errno_is_preserved = 1,
};

NBDKIT_REGISTER_PLUGIN(plugin)
