/* details.h: the result of stargrad eval --details in a run's folder: accuracy of each class, confusion matrix, calibration. */
#ifndef SGRAD_REPORT_DETAILS_H
#define SGRAD_REPORT_DETAILS_H

#include <jansson.h>
#include <stdbool.h>

/* Reads FOLDER/details.json into *DETAILS, which the caller must json_decref. NULL: the file does not exist. SGRAD_EFORMAT: it
 * was not written by eval --details. Other errors: as sgrad_json_read. */
int sgrad__details_read(const char *folder, json_t **details);
void sgrad__details_print(const json_t *details);       /* prints a summary as one line on standard output */
/* Draws FOLDER/details.svg and .png. Returns false on failure, after logging the reason. */
bool sgrad__details_draw(const char *folder, const json_t *details);

#endif
