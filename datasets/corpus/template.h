/* template.h: the form of a conversation: a small file of text with the places {prompt} and {answer}. It may have a section for
 * the system message, which is present only in the first exchange of a conversation with such a message:
 *
 *     before      <s>
 *     system[0]   {#system}<|im_start|>system\n           {system}
 *     system[1]   <|im_end|>\n{/system}
 *     opening     <|im_start|>user\n                      {prompt}
 *     between     <|im_end|>\n<|im_start|>assistant\n     {answer}
 *     after       <|im_end|>\n */
#ifndef SGRAD_DATASETS_CORPUS_TEMPLATE_H
#define SGRAD_DATASETS_CORPUS_TEMPLATE_H

#include <stdbool.h>

struct sgrad__template {
    char *before, *system[2], *opening, *between, *after; /* system: NULL without a section; after: NULL without {answer} */
};

/* Reads FILE. ANSWER: {answer} must be in it. SGRAD_EFORMAT: a place is missing, not unique or not in this order. Other errors:
 * those of sgrad_map_open. The caller must close *TEMPLATE, unless an error is returned. */
int sgrad__template_open(const char *file, bool answer, struct sgrad__template *template);
void sgrad__template_close(struct sgrad__template *template);

/* Returns the text before an answer. SYSTEM: the system message; NULL: none. The caller must free the text. */
char *sgrad__template_prompt(const struct sgrad__template *template, const char *system, const char *prompt);

#endif
