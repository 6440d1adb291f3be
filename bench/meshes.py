#!/usr/bin/env python3
"""Plot the predicted efficiency (speed-up divided by ranks) of each kind of parallelism against the number of ranks. Needs
gnuplot.

    bench/meshes.py STARGRAD PICTURE.png TITLE OPTION…

OPTION: of stargrad plan: --model … --data … --machine FILE --nodes A-B
"""
import json
import subprocess
import sys


def main(stargrad, picture, title, *words):
    said = json.loads(subprocess.run([stargrad, "plan", *words, "--mesh", "auto", "--json"], check=True, capture_output=True, text=True).stdout)
    curves = {}
    for point in said["points"]:
        for kind in point["kinds"]:
            curves.setdefault(kind["kind"], []).append((point["ranks"], 100 * kind["speedup"] / point["ranks"]))
    for kind, points in curves.items():
        print(f"{kind:16}", "  ".join(f"{ranks}: {share:.0f} %" for ranks, share in points))
    script = f"""
        set terminal pngcairo size 900,520 font "DejaVu Sans,11"
        set output "{picture}"
        set title "{title}" noenhanced
        set logscale x 2
        set xlabel "ranks"
        set xrange [*:*]
        set ylabel "speed-up over one rank, divided by ranks, %"
        set yrange [0:105]
        set grid ytics lc rgb "#dddddd"
        set key bottom left
        set border 3
        set tics nomirror
    """
    style = {"data": "#2f5d8a", "pipe": "#c9752f", "1d": "#2f8a5d", "2d": "#8a3fa8", "3d": "#b03a3a", "pipe and tensor": "#555555",
             "context": "#b08a2a"}
    for number, (kind, points) in enumerate(curves.items()):
        script += f"$k{number} << EOD\n" + "".join(f"{ranks} {share}\n" for ranks, share in points) + "EOD\n"
    script += "plot " + ", ".join(f'$k{number} with linespoints lw 2 pt {number + 5} lc rgb "{style[kind]}" title "{kind}"'
                                  for number, kind in enumerate(curves)) + "\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
