/* details.h: what eval --details has left in a run's folder: of each class its accuracy and what it is taken for, and how far
 * probabilities are to be believed. */
#ifndef SGRAD_REPORT_DETAILS_H
#define SGRAD_REPORT_DETAILS_H

#include <jansson.h>
#include <stdbool.h>

/* *DETAILS: what FOLDER/details.json has, or NULL, where there is none; the caller's. SGRAD_EFORMAT: eval has not written
 * that. */
int sgrad__details_read(const char *folder, json_t **details);
void sgrad__details_print(const json_t *details);
/* Draws FOLDER/details.svg and .png; as those of pictures.h. */
bool sgrad__details_draw(const char *folder, const json_t *details);

#endif
