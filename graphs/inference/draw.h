/* draw.h: chooses the next token of a text from the logits of a language model. Private to graphs/inference/. */
#ifndef SGRAD_GRAPHS_INFERENCE_DRAW_H
#define SGRAD_GRAPHS_INFERENCE_DRAW_H

#include "graphs/api/inference.h"

/* Returns the token that follows TEXT, COUNT tokens; -1: a logit is NaN. LOGIT[CLASSES] is overwritten. NUMBER is the index of
 * the text. The random number is a function of SEED, NUMBER and COUNT. In this order:
 *
 *     penalty        logits of tokens that TEXT contains are divided by it if positive, else multiplied
 *     temperature    probabilities are softmax(logits / temperature); 0: the first of the largest logits is chosen
 *     top_k          only the k most probable tokens, and those as probable as the last of them
 *     top_p          of these, the most probable ones that together have a fraction p of the probability
 *
 * Sources: N. S. Keskar et al., CTRL, 2019 (penalty); A. Fan, M. Lewis, Y. Dauphin, Hierarchical neural story generation, 2018
 * (top_k); A. Holtzman et al., The curious case of neural text degeneration, 2020 (top_p). */
int sgrad__draw_token(const struct sgrad_sample_options *how, float *logit, int64_t classes, const int32_t *text, int64_t count,
                      uint64_t seed, int number);

#endif
