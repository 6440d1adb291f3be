/* template.h: the form of a conversation: a small file of text with the places {prompt} and {answer}.
 *
 *     before      <|im_start|>user\n              {prompt}
 *     between     <|im_end|>\n<|im_start|>assistant\n              {answer}
 *     after       <|im_end|>\n */
#ifndef SGRAD_CLI_TEMPLATE_H
#define SGRAD_CLI_TEMPLATE_H

#include <stdbool.h>

struct sgrad__template {
    char *before, *between, *after; /* after: NULL without {answer} */
};

/* Reads FILE. ANSWER: {answer} must be in it. SGRAD_EFORMAT: a place is missing or not unique, or {answer} precedes {prompt}.
 * Other errors: those of sgrad_map_open. The caller must close *TEMPLATE, unless an error is returned. */
int sgrad__template_open(const char *file, bool answer, struct sgrad__template *template);
void sgrad__template_close(struct sgrad__template *template);

#endif
