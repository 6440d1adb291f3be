/* main.c: stargrad COMMAND: finds the command, parses its options, and runs it. */
#include "cli/simulate.h"
#include "runtime/ranks/early.h"
#include "runtime/environment.h"
#include "runtime/files/streams.h"
#include "runtime/libraries.h"

#if SGRAD_SIMULATED
#include <starpu.h>     /* gives main another name: each rank comes to it by StarPU's own */
#endif

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLI_COMMAND(name) extern const struct sgrad__command sgrad__##name##_command;
#include "cli/cli.def"
#undef CLI_COMMAND
static const struct sgrad__command *const commands[] = {
#define CLI_COMMAND(name) &sgrad__##name##_command,
#include "cli/cli.def"
#undef CLI_COMMAND
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(void) {
    puts("Usage: stargrad COMMAND [OPTION...]\nTrains neural networks as graphs of asynchronous tasks.\n");
    for (int i = 0; i < COMMANDS; i++) printf("  %-8s  %s\n", commands[i]->name, commands[i]->summary);
    puts("\n  stargrad COMMAND --help   options of a command\n"
         "  stargrad --version        version number, and the optional libraries\n\n"
         "For example:\n\n"
         "  stargrad train --model convnet --data digits");
}

static int unknown(const char *word) {
    static const char *const options[] = { "help", "version", NULL };
    const char *names[COMMANDS + 1] = { 0 };
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i]->name;
    return *word == '-' ? sgrad__no_such("", "option", word, options, "--") : sgrad__no_such("", "command", word, names, "");
}

static void version(void) {
    puts("stargrad " PACKAGE_VERSION);
    for (int built_in = 1; built_in >= 0; built_in--) {
        const char *before = built_in ? "with:" : "without:";
        for (const struct sgrad_library *l = sgrad_libraries; l->option; l++)
            if (l->built_in == built_in) printf("%s %s", before, l->name), before = ",";
        if (*before == ',') putchar('\n');
    }
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) return sgrad__wrong("the command is missing; see stargrad --help");
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) return help(), SGRAD__DONE;
    const bool helps = !strcmp(argv[1], "help");
    if (helps && argc == 2) return help(), SGRAD__DONE;
    char *of_command[] = { argv[0], argv[helps + (argc > 2)], "--help", NULL };
    if (helps) argc = 3, argv = of_command;
    if (!strcmp(argv[1], "--version")) return version(), SGRAD__DONE;
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i]->name)) continue;
        struct sgrad__request request = { .command = commands[i], .train = sgrad_train_defaults() };
        if (commands[i]->defaults) commands[i]->defaults(&request);
        int status;
        return sgrad__options_parse(commands[i], argc - 1, argv + 1, &request, &status) ? commands[i]->run(&request) : status;
    }
    return unknown(argv[1]);
}

/* Opens /dev/null for standard streams that the caller has closed. Otherwise the first opened file would get the descriptor of
 * one, and the output would be written to it. */
static void keep_standard_streams(void) {
    int fd;
    do fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* UCX, which Open MPI may load, installs a handler for SIGHUP when it is loaded. If nohup set the signal to be ignored, it must
 * remain ignored; therefore it is queried before any library is initialised. */
static bool hangup_is_ignored;

/* Likewise OpenMP's library binds this process to one core when it is loaded, if OMP_PROC_BIND or GOMP_CPU_AFFINITY is set. The
 * previous set of cores is restored, for StarPU's workers. */
static cpu_set_t cpus;
static bool cpus_are_known;

#if !SGRAD_SIMULATED
static void ask_first(int argc, char **argv, char **environment) {
    (void)argc, (void)argv, (void)environment;
    struct sigaction is;
    hangup_is_ignored = sigaction(SIGHUP, NULL, &is) == 0 && is.sa_handler == SIG_IGN;
    cpus_are_known = sched_getaffinity(0, sizeof cpus, &cpus) == 0;
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = ask_first;
#endif

static void unbind(void) {
    char *bound = sgrad_binding_variable();
    if (bound && cpus_are_known) sched_setaffinity(0, sizeof cpus, &cpus);
    free(bound);
}

/* `stargrad launch` starts the launcher with SIGTERM blocked (mpirun.c). Open MPI unblocks it in the ranks, MPICH does not. */
static void unblock(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    if (getenv("PMI_RANK")) sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* Runs the process. Output that is the same on all ranks is printed once. */
static int begin(int argc, char **argv) {
#if SGRAD_SIMULATED
    (void)argc, (void)argv;
    return sgrad__simulated_rank();
#else
    sgrad_early_open();
    const int status = dispatch(argc, argv);
    const int error = status == SGRAD__USAGE ? SGRAD_EINVAL : SGRAD_EIO;
    sgrad_ranks_leave(status == SGRAD__DONE ? 0 : error);
    return status;
#endif
}

int main(int argc, char **argv) {
    if (hangup_is_ignored) signal(SIGHUP, SIG_IGN);
    unbind();
    unblock();
    keep_standard_streams();
    int status = begin(argc, argv);
    const int lost = sgrad_stream_error(stdout);
    if (lost && status == SGRAD__DONE) {
        sgrad_log_error(SGRAD_EIO, "standard output: the result could not be written: %s", strerror(lost));
        status = SGRAD__FAILED;
    }
    return status;
}
