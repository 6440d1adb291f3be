/* Options of a command with a hundred options are read, missed and corrected as those of a command with a few. */
#include "cli/cli.h"
#include "tests/scratch.h"

enum { OPTIONS = 100 };
static char names[OPTIONS][16];
static struct sgrad__option options[OPTIONS + 1];
static const struct sgrad__command command = { .name = "many", .summary = "has many options", .options = options };

static int make_table(void **state) {
    (void)state;
    for (int i = 0; i < OPTIONS; i++) {
        snprintf(names[i], sizeof names[i], "option-%02d", i);
        options[i] = (struct sgrad__option){ names[i], "N", "a number", &sgrad__whole, SGRAD__FIELD(training.steps), 1, 1000 };
    }
    options[OPTIONS - 1].required = true;
    return 0;
}

/* Parses the words after the command's name, NULL at their end. Returns the exit status; -1: it would run. */
static int parse(char **word, struct sgrad__request *request) {
    int count = 0, status;
    while (word[count]) count++;
    *request = (struct sgrad__request){ .command = &command };
    return sgrad__options_parse(&command, count, word, request, &status) ? -1 : status;
}

static void read_all(void **state) {
    (void)state;
    static char text[OPTIONS][24];
    char *word[OPTIONS + 2] = { "many" };
    struct sgrad__request request;
    for (int i = 0; i < OPTIONS; i++) {
        snprintf(text[i], sizeof text[i], "--%s=%d", names[i], i + 1);
        word[i + 1] = text[i];
    }
    assert_int_equal(parse(word, &request), -1);
    assert_int_equal(request.train.training.steps, OPTIONS);
    assert_int_equal(parse((char *[]){ "many", "--option-99", "7", NULL }, &request), -1);
    assert_int_equal(request.train.training.steps, 7);
}

static void miss_the_last(void **state) {
    (void)state;
    struct sgrad__request request;
    assert_fails(parse((char *[]){ "many", "--option-98=1", NULL }, &request), SGRAD__USAGE, "many: --option-99 N is missing");
}

static void correct(void **state) {
    (void)state;
    struct sgrad__request request;
    assert_fails(parse((char *[]){ "many", "--optoin-99=1", NULL }, &request), SGRAD__USAGE, "did you mean --option-99?");
    assert_fails(parse((char *[]){ "many", "--opt=1", NULL }, &request), SGRAD__USAGE, "--opt is ambiguous");
    assert_fails(parse((char *[]){ "many", "--option-97", NULL }, &request), SGRAD__USAGE, "--option-97 requires a value: N");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a command of a hundred options reads each of them", read_all),
        sentence("a required option that is missing is named", miss_the_last),
        sentence("a mistyped option is corrected", correct),
    };
    return run_sentences(argc, argv, tests, make_table, NULL);
}
