/* CSV files: reading them, and errors in them. */
#include "config.h"

#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "tests/scratch.h"

#include <math.h>

static char *written(const char *name, const void *data, size_t size) {
    char *path = sgrad_format("%s/%s", scratch_root, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
    return path;
}

static struct sgrad_dataset *open_lines(const char *text, const char *more, enum sgrad_split split) {
    char *path = written("lines.csv", text, strlen(text)), *data = sgrad_format("csv:%s%s", path, more);
    struct sgrad_dataset *d = NULL;
    const int error = sgrad_dataset_open(data, split, NULL, &d);
    free(path);
    free(data);
    return error ? NULL : d;
}

static void classes(void **state) {
    (void)state;
    const char *text = "length,width,\"kind, of flower\"\n1,5,rose\n3,5,lily\n\n1,5,rose\r\n3,5,\"a \"\"tulip\"\"\"\n9,7,rose\n";
    struct sgrad_dataset *train = open_lines(text, "", SGRAD_TRAIN), *test = open_lines(text, "", SGRAD_TEST);
    assert_equal(train->count, 4);
    assert_equal(test->count, 1);
    assert_equal(train->classes, 3);
    assert_equal(test->classes, 3);
    assert_string_equal(train->class_name[0], "a \"tulip\"");
    assert_string_equal(test->class_name[2], "rose");
    const float *x = train->field[0].data, *other = test->field[0].data;
    const int32_t *label = train->field[1].data;
    const float wanted[] = { -1, 0, 1, 0, -1, 0, 1, 0 };        /* a feature that never changes has a deviation of 1 */
    assert_memory_equal(x, wanted, sizeof wanted);
    assert_equal(other[0], 7);                /* by the training lines' */
    assert_equal(other[1], 2);
    assert_equal(label[0], 2);
    assert_equal(label[1], 1);
    assert_equal(label[3], 0);
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);

    train = open_lines("1;10;2\n0;9;2\n1;9;4\n0;10;4\n0;10;5\n", ",1,classes", SGRAD_TRAIN);
    assert_equal(train->classes, 2);
    assert_equal(sgrad_field_bytes(&train->field[0]), 8);
    assert_int_equal(((const int32_t *)train->field[1].data)[0], 1);
    sgrad_dataset_close(train);
}

static void numbers(void **state) {
    (void)state;
    const char *text = "a,b,c\n1,10,2\n0,9,2\n1,9,4\n0,10,4\n0,10,5\n";
    struct sgrad_dataset *train = open_lines(text, ",b", SGRAD_TRAIN), *test = open_lines(text, ",2", SGRAD_TEST);
    assert_true(!train->classes && train->field[1].dtype == SGRAD_F32);
    assert_equal(((const float *)train->field[1].data)[1], 9);
    assert_equal(((const float *)test->field[1].data)[0], 10);
    sgrad_dataset_close(train);
    sgrad_dataset_close(test);

    assert_int_equal(mkdir(scratch_path("two"), 0700), 0);
    free(written("two/train.csv", "1,2\n3,4\n", 8));
    free(written("two/test.csv", "5,6\n", 4));
    char *data = sgrad_format("csv:%s", scratch_path("two"));
    assert_done(sgrad_dataset_open(data, SGRAD_TEST, NULL, &test));
    assert_equal(test->count, 1);
    assert_equal(((const float *)test->field[0].data)[0], 3);
    assert_equal(((const float *)test->field[1].data)[0], 6);
    sgrad_dataset_close(test);
    free(written("two/test.csv", "5,6,7\n", 6));
    assert_fails(sgrad_dataset_open(data, SGRAD_TEST, NULL, &test), SGRAD_EFORMAT, "test.csv: has 3 columns, ");
    free(data);
}

/* Where there is a header, and how many samples there are. */
static void headers(void **state) {
    (void)state;
    static const struct {
        const char *text, *more;
        int samples, features;
    } rows[] = {
        { "1,2,a\n3,4,b\n5,6,a\n7,8,b\n9,9,a\n1,1,b\n", "", 5, 2 },                      /* text is the target's alone */
        { "a,1,2\nb,3,4\na,5,6\nb,7,8\na,9,9\nb,1,1\n", ",1", 5, 2 },
        { "x,y,a\n3,4,b\n5,6,a\n7,8,b\n9,9,a\n1,1,b\n", "", 4, 2 },                      /* a title that is a class, too */
        { "\xef\xbb\xbf\"x, 1\",\"y\",k\r\n3,4,b\r\n5,6,a\r\n7,8,b\r\n9,9,a\r\n1,1,b\r\n\r\n\r\n", "", 4, 2 },
        { "x;y;k\r3;4;b\r5;6;a\r7;8;b\r9;9;a\r1;1;b\r", "", 4, 2 },
        { "x\ty\tk\n3\t4\tb\n5\t6\ta\n7\t8\tb\n9\t9\ta\n1\t1\tb", "", 4, 2 },
        { "0,1,2\n3,4,5\n5,6,5\n7,8,5\n9,9,5\n1,1,5\n", "", 5, 2 },                      /* pandas' default columns */
        { "0,1,2\n3,4,5\n5,6,5\n7,8,5\n9,9,5\n1,1,5\n", ",header", 4, 2 },
        { "0,1,2\n3,4,5\n5,6,5\n7,8,5\n9,9,5\n1,1,5\n", ",3,classes,no-header", 5, 2 },
        { "x,y,k,\n3,4,5,\n5,6,5,\n7,8,6,\n9,9,5,\n1,1,5,\n", "", 4, 2 },                  /* an empty last column */
        { "3,4,5,,\n5,6,5,,\n7,8,6,,\n9,9,5,,\n1,1,5,,\n", "", 4, 2 },
        { "k,x\nb,3\na,4\nb,5\na,6\nb,7\n", ",k", 4, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sgrad_dataset *d = open_lines(rows[i].text, rows[i].more, SGRAD_TRAIN);
        if (!d || d->count != rows[i].samples || d->field[0].shape.dim[0] != rows[i].features)
            fail_msg("row %zu: %lld samples", i, d ? (long long)d->count : -1);
        sgrad_dataset_close(d);
    }
    char said[512];
    sgrad_log_capture(said, sizeof said);
    sgrad_dataset_close(open_lines(rows[6].text, "", SGRAD_TRAIN));
    assert_contains(said, "line 1 (0,1,…) is read as a sample; append ,header to --data if it names the columns");
    sgrad_dataset_close(open_lines(rows[9].text, "", SGRAD_TRAIN));
    assert_contains(said, "every line ends with an empty cell; this column is ignored");
    sgrad_log_capture(NULL, 0);
}

/* Columns by title, in test.csv and in what a network is to see later. */
static void titles(void **state) {
    (void)state;
    struct sgrad_dataset *train, *d;
    assert_int_equal(mkdir(scratch_path("titles"), 0700), 0);
    char *data = sgrad_format("csv:%s", scratch_path("titles"));
    static const char lines[] = "x,y,k\n1,10,no\n3,30,yes\n";
    free(written("titles/train.csv", lines, sizeof lines - 1));
    free(written("titles/test.csv", "k,y,x\nyes,30,1\n", 15));
    assert_done(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &train));
    assert_done(sgrad_dataset_open(data, SGRAD_TEST, NULL, &d));
    assert_memory_equal(d->field[0].data, ((float[]){ -1, 1 }), 8);
    assert_int_equal(*(const int32_t *)d->field[1].data, 1);
    sgrad_dataset_close(d);

    struct sgrad_origin *o = train->origin;
    o->classes = 2, o->class_name = (char *[]){ (char[]){ "no" }, (char[]){ "yes" }, NULL };
    struct sgrad_dataset_options how = { .origin = o }, all = { .origin = o, .every = true };
    static const struct {
        const char *text, *says;            /* NULL: is read, */
        float x[2];                         /* as this */
        int label;                          /* -1: there is none */
        bool every;
    } rows[] = {
        { "x,y,k\n3,30,yes\n", NULL, { 1, 1 }, 1, true },
        { "k,y,x\nyes,10,3\n", NULL, { 1, -1 }, 1, true },
        { "y,x\n10,3\n", NULL, { 1, -1 }, -1, true },
        { "3,10\n", NULL, { 1, -1 }, -1, true },
        { "3,10,yes\n", NULL, { 1, -1 }, 1, true },
        { "y,x,k\n10,3,perhaps\n", NULL, { 1, -1 }, -1, true },
        { "y,id,x,k\n10,7,3,no\n", NULL, { 1, -1 }, 0, true },
        { "y,x,k\n10,3,\n", NULL, { 1, -1 }, -1, true },
        { "y,z,k\n10,3,no\n", "lacks the column 'x' and has the unknown column 'z'; its columns must be those of the run's",
          { 0 }, 0, true },
        { "u,z,k\n10,3,no\n", "lacks the columns 'x', 'y' and has the unknown columns 'u', 'z'", { 0 }, 0, true },
        { "1\n2\n", "has 1 column, but the run's data have 2 features and a target", { 0 }, 0, true },
        { "x,y\n1,2\n1,2\n1,2\n1,2\n1,2\n", "lacks the column 'k', the target of the run's data", { 0 }, 0, false },
        { "x,y,k\n1,2,no\n1,2,no\n1,2,no\n1,2,no\n1,2,maybe\n", "was not trained on the class 'maybe'", { 0 }, 0, false },
    };
    char said[1024];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = written("later.csv", rows[i].text, strlen(rows[i].text)), *later = sgrad_format("csv:%s", path);
        sgrad_log_capture(said, sizeof said);
        const int error = sgrad_dataset_open(later, SGRAD_TEST, rows[i].every ? &all : &how, &d);
        sgrad_log_capture(NULL, 0);
        if (rows[i].says ? !error || !strstr(said, rows[i].says) : error) fail_msg("row %zu: %s", i, said);
        if (!error) {
            assert_memory_equal(d->field[0].data, rows[i].x, 8);
            assert_true(d->classes == 2 && d->unlabelled == (rows[i].label < 0));
            if (rows[i].label >= 0) assert_int_equal(*(const int32_t *)d->field[1].data, rows[i].label);
            sgrad_dataset_close(d);
        }
        free(path);
        free(later);
    }
    o->classes = 0, o->class_name = NULL;
    sgrad_dataset_close(train);
    free(written("titles/test.csv", "k,z,x\nyes,30,1\n", 15));
    assert_fails(sgrad_dataset_open(data, SGRAD_TEST, NULL, &d), SGRAD_EFORMAT,
                 "lacks the column 'y' and has the unknown column 'z'");
    free(data);
}

/* Blanks around cells, separators within them, and what is read, but is likely to be meant otherwise. */
static void odd_lines(void **state) {
    (void)state;
    static const struct {
        const char *text, *more;
        int classes, features;
        const char *says;           /* NULL: nothing */
    } rows[] = {
        { "x, y, k\n1, 2, no\n1, 2,no \n3, 4,\tyes\n3, 4, yes\n5, 6,yes\n", "", 2, 2, NULL },
        { "\"x\", \"y\", \"k\"\n\"1\", \"2\", \"no\" \n1,2, \"yes\"\n1,2,no\n \t \n3,4,no\n5,6,yes\n", "", 2, 2, NULL },
        { "sep=;\r\nx;y;k\r\n1;2;no\r\n3;4;yes\r\n3;4;yes\r\n3;4;yes\r\n3;4;yes\r\n", "", 2, 2, NULL },
        { "x;y, cm;k\n1;2;no\n3;4;yes\n3;4;yes\n3;4;yes\n3;4;yes\n", "", 2, 2, NULL },
        { "x\ty, cm\tk\n1\t2\tno\n3\t4\tyes\n3\t4\tyes\n3\t4\tyes\n3\t4\tyes\n", "", 2, 2, NULL },
        { "1,9007199254740993\n1,9007199254740992\n1,7\n1,7.0\n1,7\n", ",classes", 3, 1, NULL },
        { "x,k\n5,a\n3,b\n8,NA\n5,a\n3,b\n", "", 3, 1, "line 4, column 2 (k): 'NA' is read as a class" },
        { "x,k\n5,a\n3,b\n8,NA\n5,a\n3,b\n", ",classes", 3, 1, NULL },
        { "x,k\n5,a\n3,b\n8,a\n5,a\n3,c\n4,b\n", "", 3, 1, "of 3 classes, these have no training sample: c" },
        { ",x,k\n0,5,a\n1,3,b\n2,8,a\n3,5,a\n4,3,b\n5,3,b\n6,3,b\n7,3,b\n8,3,b\n9,3,a\n", "", 2, 2,
          "line 2, column 1 (): '0' begins a column of consecutive line numbers" },
        { "x,k\n0,a\n1,b\n2,a\n3,a\n4,b\n5,b\n6,b\n7,b\n8,b\n9,a\n", "", 2, 1, NULL },
        { "year,x,k\n2,5,a\n3,3,b\n4,8,a\n5,5,a\n6,3,b\n7,3,b\n8,3,b\n9,3,b\n10,3,b\n11,3,a\n", "", 2, 2, NULL },
        { "x;k\n5;1,5\n3;2,5\n8;1,5\n5;1,5\n3;2,5\n", ",classes", 2, 1, NULL },
        { "2019,2020,sort\n5,4,a\n3,4,b\n2,8,a\n3,5,a\n4,3,b\n5,3,b\n6,3,b\n7,3,b\n8,3,b\n9,3,a\n", "", 3, 2,
          "line 1, column 3: 'sort' is a class that no other line has; append ,header to --data if line 1 names the columns" },
        { "2019,2020,2021\n5,4,3\n3,4,7\n2,8,6\n3,5,4\n4,3,4\n5,3,5\n", "", 0, 2, "line 1 (2019,2020,…) is read as a sample" },
        { "5,a\n5,b\n5,c\n5,d\n5,e\n5,f\n5,g\n5,h\n5,i\n5,j\n", "", 10, 1,
          "the 10 lines have 10 classes; check that column 2 is the target" },
        { "x,k\n5,NA\n3,b\n5,NA\n3,b\n3,b\n", "", 2, 1, "if it means 'unknown', remove these lines" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char said[512];
        sgrad_log_capture(said, sizeof said);
        struct sgrad_dataset *d = open_lines(rows[i].text, rows[i].more, SGRAD_TRAIN);
        sgrad_log_capture(NULL, 0);
        if (!d || d->classes != rows[i].classes || d->field[0].shape.dim[0] != rows[i].features)
            fail_msg("row %zu: %d classes: %s", i, d ? d->classes : -1, said);
        if (rows[i].says ? !strstr(said, rows[i].says) : *said) fail_msg("row %zu: '%s'", i, said);
        sgrad_dataset_close(d);
    }
}

/* Blanks alone are no line; a quoted cell with nothing in it is one. */
static void empty_cells(void **state) {
    (void)state;
    static const char text[] = "x\n1\n\"\"\n  \n\n3\n";
    struct sgrad__csv csv;
    assert_done(sgrad__csv_parse("x.csv", text, sizeof text - 1, &csv));
    assert_true(csv.rows == 4 && csv.columns == 1 && csv.line[2] == 3 && csv.line[3] == 6);
    assert_string_equal(csv.cell[2], "");
    assert_string_equal(csv.cell[3], "3");
    sgrad__csv_free(&csv);
}

static void wrong_lines(void **state) {
    (void)state;
    static const struct {
        const char *text, *more, *says;
        int error;
    } rows[] = {
        { "a,b\n1,2\n3\n", "", "lines.csv: line 3: has 1 column, but the first line has 2\n", SGRAD_EFORMAT },
        { "a,b\n1,\"2\n3,4\n", "", "line 2: a quote is not closed", SGRAD_EFORMAT },
        { "a,b\n\"1\"2,3\n", "", "line 2: text follows a closing quote", SGRAD_EFORMAT },
        { "a,b\n", "", "has no line of numbers", SGRAD_EFORMAT },
        { "a,b,c\n1,x,3\n1,2,3\n1,2,3\n1,2,3\n1,2,3\n", "", "line 2, column 2 (b): 'x' is not a number", SGRAD_EFORMAT },
        { "a,b,c\n1,2,3\n1,nan,3\n1,2,3\n1,2,3\n1,2,3\n", "", "line 3, column 2 (b): 'nan' is not a number", SGRAD_EFORMAT },
        { "a,b\n1,2\n3,4\n", ",d", "has no column 'd'", SGRAD_EINVAL },
        { "a,b\n1,2\n3,4\n", ",3", "has no column '3'", SGRAD_EINVAL },
        { "a,b\n1,2\n3,4\n", ",b,class", "has no column 'b,class'; give csv:FILE[,COLUMN]", SGRAD_EINVAL },
        { "a,b\n1,2\n3,4\n", ",b,classes,numbers", "classes cannot be combined with numbers", SGRAD_EINVAL },
        { "a,t\n1,2\n2,\n3,4\n4,5\n5,6\n", "", "line 3, column 2 (t): '' is empty, but the target must be known", SGRAD_EFORMAT },
        { "a,b,t\n1,2,3\n\n1,2,n/a\n1,2,4\n", "", "line 4, column 3 (t): 'n/a' is not a number", SGRAD_EFORMAT },
        { "a,b,t\n1,2,x\n1,2,y\n1,2,4\n", "", "line 4, column 3 (t): '4' is a number", SGRAD_EFORMAT },
        { "a,b,t\n1,2,x\n1,2,\n1,2,y\n", "", "line 3, column 3 (t): '' is not a class: the cell is empty", SGRAD_EFORMAT },
        { "a,b,t\n1,2,x\n1,,y\n1,2,y\n", "", "line 3, column 2 (b): '' is not a number", SGRAD_EFORMAT },
        { "a,b,t\n1,2,x\n1,inf,y\n1,2,y\n", "", "line 3, column 2 (b): 'inf' is not a number", SGRAD_EFORMAT },
        { "a,b,t\n1,2,x\n1,2,y\n1,2,y\n", ",numbers", "line 2, column 3 (t): 'x' is not a number", SGRAD_EFORMAT },
        { "t,a,t\n1,2,3\n1,2,3\n", ",t", "columns 1 and 3 are both called 't'", SGRAD_EINVAL },
        { "1\n2\n", "", "has one column", SGRAD_EFORMAT },
        { "# made by hand\na,b,t\n1,2,3\n1,2,4\n", "", "but the first line has 1 and begins with #; remove it if it is a comment",
          SGRAD_EFORMAT },
        { "1|2|a\n2|3|b\n", "", "separated by commas, semicolons or tabs", SGRAD_EFORMAT },
        { "a,b\n1,2\n0x10,4\n3,4\n", "", "line 3, column 1 (a): '0x10' is not a number", SGRAD_EFORMAT },
        { "a,b\n1,2\n1e300,4\n3,4\n", "", "line 3, column 1 (a): '1e300' is not a number, or exceeds the range of 32-bit floats",
          SGRAD_EFORMAT },
        { "a,t\n1,2\n1,-1e39\n1,4\n", "", "line 3, column 2 (t): '-1e39' is not a number", SGRAD_EFORMAT },
        { "0,12;a\n3,5;b\n4,5;a\n", "", "line 1, column 1: '0,12' has a decimal comma; write 0.12", SGRAD_EFORMAT },
        { "a;b;y\n0,5;0,25;0\n1,5;2,5;1\n", "", "line 2, column 1 (a): '0,5' has a decimal comma; write 0.5", SGRAD_EFORMAT },
        { "1,5;2,5\n3,5;4,5\n", "", "line 1, column 2: '2,5' has a decimal comma", SGRAD_EFORMAT },
        { "1,5\t2,5\n", "", "line 1, column 2: '2,5' has a decimal comma", SGRAD_EFORMAT },
        { "a;t\n1;-2,5\n3;4,5\n", "", "line 2, column 2 (t): '-2,5' has a decimal comma; write -2.5", SGRAD_EFORMAT },
        { "a;b;t\n1,000,000;2;3\n", "", "'1,000,000' is not a number, or exceeds the range of 32-bit floats", SGRAD_EFORMAT },
        { "\xff\xfe" "1\0,\0002\0\n", "", "is UTF-16 text; save it as UTF-8", SGRAD_EFORMAT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t wide = *rows[i].text == '\xff' ? 10 : strlen(rows[i].text);
        char *path = written("lines.csv", rows[i].text, wide);
        char *data = sgrad_format("csv:%s%s", path, rows[i].more);
        struct sgrad_dataset *none;
        assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), rows[i].error, rows[i].says);
        free(path);
        free(data);
    }
    struct sgrad_dataset *none;
    char *data = sgrad_format("csv:%s/nowhere.csv", scratch_root), *path = written("few.csv", "1,2\n3,4\n", 8);
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), SGRAD_EIO, "nowhere.csv");
    free(data);
    data = sgrad_format("csv:%s", path);
    assert_fails(sgrad_dataset_open(data, SGRAD_TEST, NULL, &none), SGRAD_EFORMAT,
                 "has 2 lines, but the test split is every fifth line");
    free(data);
    free(path);
}

/* ---- categories, missing values, held-out lines ---- */

static char *reference(const char *name) {
    const char *source = getenv("srcdir");
    return sgrad_format("%s/tests/reference/%s", source ? source : ".", name);
}

static struct sgrad_dataset *open_reference(const char *more, enum sgrad_split split, const struct sgrad_dataset_options *how) {
    char *path = reference("tables.csv"), *data = sgrad_format("csv:%s%s", path, more);
    struct sgrad_dataset *d = NULL;
    assert_done(sgrad_dataset_open(data, split, how, &d));
    free(path);
    free(data);
    return d;
}

/* Compares all lines with the next COLUMNS numbers per line in FILE. */
static void assert_features(FILE *file, const char *how, int columns) {
    char *more = sgrad_format(",-id,-price,category=zip,missing=%s", how);
    struct sgrad_dataset *d[2] = { open_reference(more, SGRAD_TRAIN, NULL), open_reference(more, SGRAD_TEST, NULL) };
    assert_int_equal(d[0]->field[0].shape.dim[0], columns);
    assert_true(d[0]->count == 32 && d[1]->count == 8 && d[0]->classes == 3);
    for (int64_t line = 0; line < 40; line++) {
        const int test = line % 5 == 4;
        const float *x = (const float *)d[test]->field[0].data + (test ? line / 5 : line - line / 5) * columns;
        for (int f = 0; f < columns; f++) {
            double wanted;
            assert_int_equal(fscanf(file, "%lf", &wanted), 1);
            if (!(fabs(x[f] - wanted) < 1e-6))
                fail_msg("%s, line %lld, feature %d: %g, not %g", how, (long long)line, f, x[f], wanted);
        }
    }
    sgrad_dataset_close(d[0]);
    sgrad_dataset_close(d[1]);
    free(more);
}

/* tests/reference/tables.py made the numbers. */
static void encoded(void **state) {
    (void)state;
    char *path = reference("tables.txt"), word[16], class[3][8];
    FILE *file = fopen(path, "r");
    double a, b;
    int columns;
    assert_non_null(file);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fscanf(file, "%15s %d", word, &columns), 2);
        assert_features(file, word, columns);
    }
    assert_int_equal(fscanf(file, " scale %lf %lf", &a, &b), 2);
    struct sgrad_dataset *d = open_reference(",price,-id,-kind,missing=mean,scale", SGRAD_TEST, NULL);
    assert_true(fabs(d->origin->target_mean - a) < 1e-6 && fabs(d->origin->target_deviation - b) < 1e-6);
    assert_true(fabs(*(const float *)d->field[1].data - (81.7 - a) / b) < 1e-5);
    sgrad_dataset_close(d);
    while (fscanf(file, " split %lf %7s %7s %7s", &a, class[0], class[1], class[2]) == 4) {
        const struct sgrad_dataset_options how = { .split = a, .seed = 7 };
        int count[2][3] = { { 0 }, { 0 } };
        for (int split = 0; split < 2; split++) {
            d = open_reference(",-id,missing=mean", split, &how);
            for (int64_t i = 0; i < d->count; i++) count[split][((const int32_t *)d->field[1].data)[i]]++;
            assert_int_equal(d->held_out, ceil(a * 40));
            sgrad_dataset_close(d);
        }
        for (int c = 0; c < 3; c++) assert_int_equal(count[1][c], atoi(class[c]));
        assert_true(count[0][0] + count[1][0] == 26 && count[0][1] + count[1][1] == 9);
    }
    fclose(file);
    free(path);
}

/* What a network was trained on determines the encoding of later lines. */
static void later(void **state) {
    (void)state;
    static const char lines[] = "n,c,t\n1,x,0\n,y,0\n3,x,0\n5,,1\n9,z,1\n";    /* line 5 is a test line: z is no category */
    char said[1024];
    struct sgrad_dataset *train = open_lines(lines, ",classes,missing=mean", SGRAD_TRAIN), *d;
    const struct sgrad_origin *o = train->origin;
    assert_true(o->columns == 2 && o->column[1].categories == 2 && o->features == 5);
    assert_string_equal(o->title[1], "n missing");
    assert_string_equal(o->title[3], "c=y");
    assert_contains(train->note, "missing values, replaced by the mean or the most frequent category: 1 of n (3), 1 of c (x)");
    assert_contains(train->note, "categories: 2 of c");
    const struct {
        const char *text, *more, *says;
        float x[4];         /* without the first feature, n */
    } rows[] = {
        { "c,id,n\ny,17,\n", ",-id", "missing values, replaced by the mean or the most frequent category: 1 of n (3)",
          { 1, 0, 1, 0 } },
        { "c,id,n\n?,17,3\n", ",-id", "1 of c (x)", { 0, 1, 0, 1 } },
        { "c,id,n\nw,17,3\nx,1,1\nw,1,1\n", ",-id",
          "line 2, column 1 (c): 'w' is a category that no training line has; 2 such cells are",
          { 0, 0, 0, 0 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = written("later.csv", rows[i].text, strlen(rows[i].text));
        char *data = sgrad_format("csv:%s%s", path, rows[i].more);
        const struct sgrad_dataset_options how = { .origin = o, .every = true, .id = "id" };
        sgrad_log_capture(said, sizeof said);
        assert_done(sgrad_dataset_open(data, SGRAD_TEST, &how, &d));
        sgrad_log_capture(NULL, 0);
        assert_contains(said, rows[i].says);
        for (int f = 0; f < 4; f++) assert_equal(((const float *)d->field[0].data)[f + 1], rows[i].x[f]);
        char *name = sgrad_dataset_sample_name(d, 0);
        assert_string_equal(name, "17");
        assert_string_equal(d->id_title, "id");
        free(name);
        free(data);
        free(path);
        sgrad_dataset_close(d);
    }
    sgrad_dataset_close(train);
}

static void refused_columns(void **state) {
    (void)state;
    static const struct {
        const char *text, *more, *says;
        int error;
    } rows[] = {
        { "c,n,t\nx,1,0\n,1,0\ny,1,0\n", ",header", "line 3, column 1 (c): '' is a missing value; append ,missing=mean",
          SGRAD_EFORMAT },
        { "c,n,t\n,1,0\n,1,0\n,1,0\n", ",header,missing=mean", "column 1 has no value in the training lines", SGRAD_EFORMAT },
        { "c,n,t\nx,1,0\n", ",-u", "has no column 'u'", SGRAD_EINVAL },
        { "c,n,t\nx,1,0\n", ",-t,t", "column 3 is the target; it cannot be ignored", SGRAD_EINVAL },
        { "c,n,t\nx,1,0\n", ",header,-c,-n", "no column is left for the features", SGRAD_EFORMAT },
        { "c,n,t\nx,1,0\ny,1,0\n", ",t,classes,scale", "scale cannot be combined with classes", SGRAD_EINVAL },
        { "c,n,t\nx,1,a\ny,1,b\n", ",t,scale", "scale requires a target of numbers", SGRAD_EINVAL },
        { "c,n,t\na,1,0\nb,1,0\nc,1,0\nd,1,0\ne,1,0\nf,1,0\ng,1,0\nh,1,0\ni,1,0\nj,1,0\nk,1,0\nl,1,0\nm,1,0\n", "",
          "column 1 (c) is text with 11 different values in 11 training lines; append ,-1 to ignore it, or ,category=COLUMN",
          SGRAD_EFORMAT },
        { "c,n,t\nx,1,0\n", ",missing=median", "has no column 'missing=median'", SGRAD_EINVAL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = written("lines.csv", rows[i].text, strlen(rows[i].text));
        char *data = sgrad_format("csv:%s%s", path, rows[i].more);
        struct sgrad_dataset *none;
        assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &none), rows[i].error, rows[i].says);
        free(path);
        free(data);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a CSV file gives normalised features and classes", classes),
        sentence("a CSV file gives numbers as targets, from one file or from two", numbers),
        sentence("a malformed CSV file is refused with line and column", wrong_lines),
        sentence("a line with a quoted empty cell is a row, and a blank line is not", empty_cells),
        sentence("a CSV header is recognised with any separator, quote or line end", headers),
        sentence("columns of later files are matched by their titles", titles),
        sentence("categories, missing values, scales and shares of classes are those of scikit-learn", encoded),
        sentence("later lines are encoded as the training lines, and named by their identifiers", later),
        sentence("a column that cannot be encoded is refused with the remedy", refused_columns),
        sentence("an unusual but legal CSV file is read, with a warning if it is probably a mistake", odd_lines),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
