#!/usr/bin/env python3
"""Make tables.csv and tables.txt: a table with missing values and categories, and its features as scikit-learn encodes them; the tests
do not run this.

tables.csv    40 lines: an identifier, numbers, categories of text and of numbers, a number to predict and a class
tables.txt    "HOW N": for each replacement of missing values, the features of all N columns of features, line by line, fitted to the
              training lines (without every fifth): numbers imputed, standardised and followed by a flag, categories imputed, one-hot
              encoded and followed by a flag, as pipelines of SimpleImputer, StandardScaler and OneHotEncoder
              "scale MEAN DEVIATION": of the number to predict, in the training lines
              "split FRACTION N N N": the test samples of each class by train_test_split(stratify=...)
"""
import pathlib

import numpy
import pandas
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

HERE, LINES = pathlib.Path(__file__).parent, 40


def make():
    draw = numpy.random.default_rng(46)
    frame = pandas.DataFrame({
        "id": [f"p{i:03d}" for i in range(LINES)],
        "age": draw.integers(18, 30, LINES).astype(float),
        "sex": draw.choice(["female", "male"], LINES),
        "zip": draw.choice([10115, 20095, 50667, 9], LINES),
        "fare": draw.gamma(2, 20, LINES).round(2),
        "port": draw.choice(["S", "C", "Q"], LINES, p=[.6, .3, .1]),
        "price": draw.normal(200, 40, LINES).round(1),
        "kind": draw.choice(["a", "b", "c"], LINES, p=[.55, .3, .15]),
    })
    frame.loc[draw.choice(LINES, 7, replace=False), "age"] = None
    frame.loc[[3, 17, 24], "port"] = None
    frame.to_csv(HERE / "tables.csv", index=False)
    return pandas.read_csv(HERE / "tables.csv")


def flagged(values, steps):
    return FeatureUnion([("values", steps), ("flag", MissingIndicator(features="missing-only"))]) if values.isna().any() else steps


def features(frame, train, strategy):
    parts = []
    for column in ("age", "sex", "zip", "fare", "port"):
        numbers = column in ("age", "fare")
        steps = (make_pipeline(SimpleImputer(strategy={"mean": "mean", "frequent": "most_frequent"}[strategy]), StandardScaler()) if numbers
                 else make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)))
        parts.append((column, flagged(frame[column][train], steps), [column]))
    return ColumnTransformer(parts).fit(frame[train]).transform(frame).astype(float)


def main():
    frame, lines = make(), []
    train = numpy.arange(LINES) % 5 != 4
    for strategy in ("mean", "frequent"):
        encoded = features(frame, train, strategy)
        lines.append(f"{strategy} {encoded.shape[1]}")
        lines += [" ".join(f"{x:.9g}" for x in row) for row in encoded]
    lines.append(f"scale {frame.price[train].mean():.9g} {frame.price[train].std(ddof=0):.9g}")
    for fraction in (.1, .25, .5):
        test = train_test_split(frame.kind, test_size=fraction, stratify=frame.kind, random_state=0)[1]
        lines.append(f"split {fraction} " + " ".join(str((test == kind).sum()) for kind in "abc"))
    (HERE / "tables.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
