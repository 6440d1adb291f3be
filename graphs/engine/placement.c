/* placement.c: --data-placement partition: the training set is stored in the memory of all ranks together, a partition in each.
 *
 *                         rank 0                  rank 1
 *     epoch e     ┌───── a b e f i ─────┐ ┌───── c d g h j ─────┐      read by the steps of epoch e
 *     gather      a b │ e i f           │ │           c g h │ d j      in packets of at most 1 MiB
 *     message      │  └──────── e i f ──────── c g h ──┘   │           during the epoch, a few in each step
 *     scatter      └──── c a b g h      │ │      j e i d f ─┘
 *     epoch e+1   └───── c a b g h ─────┘ └───── j e i d f ─────┘      read when it is complete, by data dependency
 *
 * Records that stay on their rank are copied without a packet. In exchange t of an epoch, a rank sends packet t / ranks to
 * rank + t and receives such a packet from rank - t (modulo the number of ranks). This order is the same on all ranks, and each
 * rank has a ring of packets for either direction, so that there is no deadlock. For the first epoch of a process the records are
 * read from the files instead.
 *
 * Records are sent to the rank that needs them by the order of samples, so that the order of samples is exactly that of
 * --data-placement replicate. Memory: two partitions (one with --no-shuffle) and the two rings.
 *
 * Source: data in memory and its shuffle by all-to-all (DIMD) of Sreedhar, Saxena, Sabharwal, Verma, Kumar: Efficient Training
 * of Convolutional Neural Nets on Large Distributed Systems, arXiv:1711.00705. There the shuffle interrupts training every few
 * epochs, and a rank draws from the records that it stores at that time; here it runs concurrently with training.
 *
 * Limits: the first step of an epoch waits for the last of its records. A rank needs eight bytes per sample of the complete
 * training set for the order, as without placement, and twice as many more while an exchange is planned. */
#include "graphs/engine/placement.h"
#include "graphs/engine/runner.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 4 };   /* alignment of the fields in a record, bytes */
/* tasks and messages of training have priority */
enum { RING = 16, PACKET_BYTES = 1 << 20, PRIORITY = -1, MESSAGE_PRIORITY = INT_MIN };
#define TAG ((int64_t)1 << 48)      /* larger than the tags of communication plans and strategies */

enum { LOAD, GATHER, SCATTER, KEEP, CALLS };
struct sgrad__placement {
    struct sgrad__placement_options is;
    struct sgrad__partition partition;
    int64_t share, slots;               /* records of this rank: of a step, of all steps */
    long steps_per_epoch;
    int fields;
    /* bytes: of a field; offset of a field in a record; of a record */
    size_t field[SGRAD_MAX_FIELDS], at[SGRAD_MAX_FIELDS], record;
    struct sgrad_tensor *records[2];    /* of even and of odd epochs; only the first one if records never move */

    int64_t packet;                     /* records in a packet; the same on all ranks */
    struct sgrad_tensor *out[RING], *in[RING];
    int64_t outs, ins;                  /* number of packets so far */
    struct sgrad_bound_kernel call[CALLS];

    uint32_t epoch;
    struct sgrad__exchange exchange;    /* to the next epoch; ranks is 0 without an exchange */
    int64_t turns, turn;                /* number of exchanges; of those submitted */
    long first, last;                   /* steps over which they are distributed */
    struct sgrad_monitor *monitor;
    long outstanding;                   /* number of tasks submitted and not yet executed; protected by monitor */
};

/* ---- kernels; the argument `first` is the number of the exchange ------------------------------------------------- */

/* Returns the slots of LIST that packet K contains. */
static struct sgrad__slots packet_of(const struct sgrad__placement *placement, const struct sgrad__slots *list, int64_t k) {
    const int64_t left = list->count - k * placement->packet;
    if (left <= 0) return (struct sgrad__slots){ 0 };
    return (struct sgrad__slots){ left < placement->packet ? left : placement->packet, list->slot + k * placement->packet };
}

static int receiver(const struct sgrad__placement *placement, int64_t turn) {
    return (int)((placement->is.rank + turn) % placement->is.ranks);
}
static int sender(const struct sgrad__placement *placement, int64_t turn) {
    return (int)((placement->is.rank + placement->is.ranks - turn % placement->is.ranks) % placement->is.ranks);
}

static struct sgrad__slots outgoing(const struct sgrad__placement *placement, int64_t turn) {
    return packet_of(placement, &placement->exchange.out[receiver(placement, turn)], turn / placement->is.ranks);
}
static struct sgrad__slots incoming(const struct sgrad__placement *placement, int64_t turn) {
    return packet_of(placement, &placement->exchange.in[sender(placement, turn)], turn / placement->is.ranks);
}

/* packet U8 (packet,bytes) (W): incoming records, read from the files */
static void load(const struct sgrad_args *args) {
    const struct sgrad__placement *p = args->attrs;
    const struct sgrad__slots to = incoming(p, args->first);
    uint8_t *record = args->data[0];
    for (int64_t i = 0; i < to.count; i++, record += p->record) {
        void *field[SGRAD_MAX_FIELDS];
        for (int f = 0; f < p->fields; f++) field[f] = record + p->at[f];
        const int64_t position = sgrad__partition_position(&p->partition, (struct sgrad__place){ p->is.rank, to.slot[i] });
        const struct sgrad_sample sample = sgrad__sampler_sample(p->is.order, p->epoch, position);
        int error = sgrad_dataset_load(p->is.dataset, &sample, 1, NULL, field);
        if (error) return sgrad_task_fail(error);
    }
}

/* records U8 (slots,bytes) (R), packet (W); the unused end of an incomplete packet is set to zero */
static void gather(const struct sgrad_args *args) {
    const struct sgrad__placement *p = args->attrs;
    const struct sgrad__slots from = outgoing(p, args->first);
    const uint8_t *records = args->data[0];
    uint8_t *packet = args->data[1];
    for (int64_t i = 0; i < from.count; i++)
        memcpy(packet + (size_t)i * p->record, records + (size_t)from.slot[i] * p->record, p->record);
    memset(packet + (size_t)from.count * p->record, 0, (size_t)(p->packet - from.count) * p->record);
}

/* packet (R), records (RW) */
static void scatter(const struct sgrad_args *args) {
    const struct sgrad__placement *p = args->attrs;
    const struct sgrad__slots to = incoming(p, args->first);
    const uint8_t *packet = args->data[0];
    uint8_t *records = args->data[1];
    for (int64_t i = 0; i < to.count; i++)
        memcpy(records + (size_t)to.slot[i] * p->record, packet + (size_t)i * p->record, p->record);
}

/* records of this epoch (R), of the next one (RW) */
static void keep(const struct sgrad_args *args) {
    const struct sgrad__placement *p = args->attrs;
    const struct sgrad__slots from = outgoing(p, args->first), to = incoming(p, args->first);
    const uint8_t *before = args->data[0];
    uint8_t *after = args->data[1];
    for (int64_t i = 0; i < to.count; i++)
        memcpy(after + (size_t)to.slot[i] * p->record, before + (size_t)from.slot[i] * p->record, p->record);
}

static void take(const struct sgrad_args *args) {
    const struct sgrad__placement *p = args->attrs;
    const int64_t step = (args->step->number - 1) % p->steps_per_epoch, count = args->view[0].shape.dim[0];
    const uint8_t *record = args->data[p->fields];
    record += (size_t)(step * p->share + args->first) * p->record;
    const struct sgrad_drawing how = { args->step->seed, args->step->epoch, p->is.dataset->drawn };
    for (int64_t i = 0; i < count; i++, record += p->record) {
        void *field[SGRAD_MAX_FIELDS];
        for (int f = 0; f < p->fields; f++) {
            field[f] = (uint8_t *)args->data[f] + (size_t)i * p->field[f];
            memcpy(field[f], record + p->at[f], p->field[f]);
        }
        if (how.augmentations.count)
            sgrad_dataset_augment(p->is.dataset, args->step->sample[args->first + i].index, &how, field);
    }
}

static double packet_bytes(const struct sgrad_args *args) {
    const struct sgrad__placement *p = args->attrs;
    return 2 * (double)p->packet * (double)p->record;
}
static double taken_bytes(const struct sgrad_args *args) {
    const struct sgrad__placement *p = args->attrs;
    return 2 * (double)args->view[0].shape.dim[0] * (double)p->record;
}

static const struct sgrad_kernel kernel[CALLS] = {
    [LOAD] = { .name = "load records", .kind = &sgrad_input_kind, .cpu = load, .flops = sgrad_no_flops, .bytes = packet_bytes },
    [GATHER] = { .name = "gather records",
                 .kind = &sgrad_input_kind,
                 .cpu = gather,
                 .flops = sgrad_no_flops,
                 .bytes = packet_bytes },
    [SCATTER] = { .name = "scatter records",
                  .kind = &sgrad_input_kind,
                  .cpu = scatter,
                  .flops = sgrad_no_flops,
                  .bytes = packet_bytes },
    [KEEP] = { .name = "keep records", .kind = &sgrad_input_kind, .cpu = keep, .flops = sgrad_no_flops, .bytes = packet_bytes },
};

/* ---- creation and destruction ------------------------------------------------------------------------------------ */

/* Returns the records of a packet: the mean number of records that one rank sends to another in an epoch, plus six standard
 * deviations, divided into packets of equal size and at most PACKET_BYTES. */
static int64_t packet_size(const struct sgrad__placement *placement) {
    const double mean = (double)placement->partition.count / placement->is.ranks / placement->is.ranks;
    const int64_t limit = PACKET_BYTES / (int64_t)placement->record, most = (int64_t)(mean + 6 * sqrt(mean)) + 1;
    if (limit <= 1) return 1;
    const int64_t parts = (most + limit - 1) / limit;
    return (most + parts - 1) / parts;
}

static struct sgrad_view bytes_of(int64_t records, size_t record) {
    return (struct sgrad_view){ SGRAD_U8, { 2, { records, (int64_t)record } } };
}

struct sgrad_view sgrad__placement_view(const struct sgrad__placement *placement) {
    return bytes_of(placement->slots, placement->record);
}

struct sgrad__source sgrad__placement_source(const struct sgrad__placement *placement) {
    static const struct sgrad_kernel kernel = { .name = "take", .kind = &sgrad_input_kind, .cpu = take, .flops = sgrad_no_flops,
                                                .bytes = taken_bytes };
    return (struct sgrad__source){ .kernel = &kernel, .attrs = placement, .records = sgrad__placement_view(placement) };
}

static void prepare(struct sgrad__placement *placement, int call, struct sgrad_view first, struct sgrad_view second,
                    int operands) {
    placement->call[call] =
        (struct sgrad_bound_kernel){ .kernel = &kernel[call],
                                     .attrs = placement,
                                     .operands = operands,
                                     .view = { first, second },
                                     .access = { operands == 1 ? SGRAD_W : SGRAD_R, call == GATHER ? SGRAD_W : SGRAD_RW } };
    sgrad_bound_kernel_prepare(&placement->call[call]);
}

struct sgrad__placement *sgrad__placement_create(const struct sgrad__placement_options *options) {
    const struct sgrad_dataset *d = options->dataset;
    struct sgrad__placement *p = sgrad_xcalloc(1, sizeof *p);
    p->is = *options;
    p->partition = (struct sgrad__partition){ d->count, options->batch, options->ranks };
    p->share = options->batch / options->ranks;
    p->slots = sgrad__partition_slots(&p->partition, options->rank);
    p->steps_per_epoch = d->count / options->batch;
    p->fields = sgrad_dataset_fields(d);
    for (int f = 0; f < p->fields; f++) {
        p->field[f] = sgrad_field_bytes(&d->field[f]);
        p->at[f] = p->record;
        p->record += (p->field[f] + ALIGNED - 1) / ALIGNED * ALIGNED;
    }
    p->packet = packet_size(p);
    const struct sgrad_view all = sgrad__placement_view(p), packet = bytes_of(p->packet, p->record);
    prepare(p, LOAD, packet, all, 1);
    prepare(p, GATHER, all, packet, 2);
    prepare(p, SCATTER, packet, all, 2);
    prepare(p, KEEP, all, all, 2);
    p->monitor = sgrad_monitor_create();
    return p;
}

void sgrad__placement_destroy(struct sgrad__placement *placement) {
    if (!placement) return;
    for (int i = 0; i < RING; i++) {
        sgrad_tensor_destroy(placement->out[i]);
        sgrad_tensor_destroy(placement->in[i]);
    }
    for (int i = 0; i < 2; i++) sgrad_tensor_destroy(placement->records[i]);
    sgrad__exchange_free(&placement->exchange);
    sgrad_monitor_destroy(placement->monitor);
    free(placement);
}

static int allocate(struct sgrad__placement *placement) {
    const struct sgrad_view all = sgrad__placement_view(placement), packet = bytes_of(placement->packet, placement->record);
    for (int i = 0; i < RING; i++) {
        SGRAD_TRY(sgrad_tensor_create("records out", SGRAD_U8, packet.shape, SGRAD_TRANSIENT, &placement->out[i]));
        SGRAD_TRY(sgrad_tensor_create("records in", SGRAD_U8, packet.shape, SGRAD_TRANSIENT, &placement->in[i]));
    }
    for (int i = 0; i < 2; i++)
        if (i == 0 || placement->is.shuffle)
            SGRAD_TRY(sgrad_tensor_create("records", SGRAD_U8, all.shape, SGRAD_PERSISTENT, &placement->records[i]));
    return 0;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

static struct sgrad_tensor *records(const struct sgrad__placement *placement, uint32_t epoch) {
    return placement->records[placement->is.shuffle ? epoch % 2 : 0];
}

static void count(struct sgrad__placement *placement, long more) {
    sgrad_monitor_lock(placement->monitor);
    placement->outstanding += more;
    sgrad_monitor_notify(placement->monitor);
    sgrad_monitor_unlock(placement->monitor);
}

static void has_run(void *arg) { count(arg, -1); }

static int submit(struct sgrad__placement *placement, int call, struct sgrad_tensor *first, struct sgrad_tensor *second,
                  int64_t turn) {
    count(placement, 1);
    const int error = sgrad_task_submit(&(struct sgrad_submission){ .call = &placement->call[call],
                                                                    .operand = (struct sgrad_tensor *[]){ first, second },
                                                                    .first = turn,
                                                                    .priority = PRIORITY,
                                                                    .name = kernel[call].name,
                                                                    .done = has_run,
                                                                    .done_arg = placement });
    if (error) count(placement, -1);
    return error;
}

/* Waits for the tasks that read the exchange. They depend on no later submissions: other ranks submit their side of it at the
 * latest with the last step of the epoch. */
static void come_to_rest(struct sgrad__placement *placement) {
    struct sgrad__idle idle = { .before = -1 };
    sgrad_monitor_lock(placement->monitor);
    while (placement->outstanding > 0)
        if (sgrad__nap(placement->monitor, placement->outstanding, &idle))
            sgrad_watchdog_report(false, "for the records of the next epoch");
    sgrad_monitor_unlock(placement->monitor);
}

static struct sgrad_message message(const struct sgrad__placement *placement, struct sgrad_tensor *packet, int peer,
                                    int64_t turn) {
    const int64_t tag = TAG + ((int64_t)(placement->epoch % (1 << 16)) << 32) + turn / placement->is.ranks;
    return (struct sgrad_message){ .tensor = packet, .peer = peer, .tag = tag, .priority = MESSAGE_PRIORITY };
}

static int submit_turn(struct sgrad__placement *placement, int64_t turn) {
    struct sgrad_tensor *before = records(placement, placement->epoch), *after = records(placement, placement->epoch + 1);
    const bool sends = outgoing(placement, turn).count, receives = incoming(placement, turn).count;
    if (receiver(placement, turn) == placement->is.rank) return sends ? submit(placement, KEEP, before, after, turn) : 0;
    if (sends) {
        struct sgrad_tensor *packet = placement->out[placement->outs++ % RING];
        struct sgrad_message m = message(placement, packet, receiver(placement, turn), turn);
        SGRAD_TRY(submit(placement, GATHER, before, packet, turn));
        SGRAD_TRY(sgrad_send(&m));
    }
    if (receives) {
        struct sgrad_tensor *packet = placement->in[placement->ins++ % RING];
        struct sgrad_message m = message(placement, packet, sender(placement, turn), turn);
        SGRAD_TRY(sgrad_receive(&m));
        SGRAD_TRY(submit(placement, SCATTER, packet, after, turn));
    }
    return 0;
}

static void set_exchange(struct sgrad__placement *placement, struct sgrad__exchange exchange) {
    sgrad__exchange_free(&placement->exchange);
    placement->exchange = exchange;
    placement->turn = 0;
    placement->turns = (exchange.longest + placement->packet - 1) / placement->packet * placement->is.ranks;
}

/* ---- functions called by the training loop ----------------------------------------------------------------------- */

int sgrad__placement_load(struct sgrad__placement *placement, uint32_t epoch) {
    placement->epoch = epoch;
    placement->last = -1;
    SGRAD_TRY(allocate(placement));
    sgrad__sampler_index(placement->is.order, epoch, 0);    /* creates the order here; the tasks only read it */
    set_exchange(placement, sgrad__exchange_of_files(&placement->partition, placement->is.rank));
    for (; placement->turn < placement->turns; placement->turn += placement->is.ranks) {
        struct sgrad_tensor *packet = placement->in[placement->ins++ % RING];
        SGRAD_TRY(submit(placement, LOAD, packet, NULL, placement->turn));
        SGRAD_TRY(submit(placement, SCATTER, packet, records(placement, epoch), placement->turn));
    }
    SGRAD_TRY(sgrad_wait_all());
    sgrad_dataset_release(placement->is.dataset);
    return 0;
}

/* Starts the exchange to the next epoch, if there is one, with STEP, the first step of an epoch. */
static void begin(struct sgrad__placement *placement, long step) {
    come_to_rest(placement);
    placement->epoch = (uint32_t)(step / placement->steps_per_epoch);
    placement->first = step;
    placement->last = ((long)placement->epoch + 1) * placement->steps_per_epoch - 1;
    const bool moves = placement->is.shuffle && placement->last + 1 < placement->is.steps;
    set_exchange(placement,
                 moves ? sgrad__exchange_plan(&placement->partition, placement->is.order, placement->epoch, placement->is.rank)
                       : (struct sgrad__exchange){ 0 });
}

int sgrad__placement_step(struct sgrad__placement *placement, long step, struct sgrad_tensor **tensor) {
    if (step > placement->last) begin(placement, step);
    const int64_t due = placement->turns * (step - placement->first + 1) / (placement->last - placement->first + 1);
    for (; placement->turn < due; placement->turn++) SGRAD_TRY(submit_turn(placement, placement->turn));
    *tensor = records(placement, placement->epoch);
    return 0;
}
