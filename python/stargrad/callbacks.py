"""callbacks.py: functions that are called during a training (struct sgrad_train_events), and the progress line."""
import json
import sys
import time

from .library import Error, Event, Events, Start

GO_ON, END, BREAK = 0, 1, -1        # results of a function, for the library


class Stop(Exception):
    """Ends a training early, when on_step or on_epoch raises it or returns it. The run then ends as after its last step."""


class Callbacks:
    """The functions of a training. events: what the library calls. raised: the exception of a function; None: there is none."""

    def __init__(self, on_step=None, on_epoch=None, progress=None):
        for name, function in (("on_step", on_step), ("on_epoch", on_epoch)):
            if function is not None and not callable(function):
                raise Error(f"{name} must be a function")
        self.raised = None
        steps, epochs = [on_step], [on_epoch]
        if progress:
            steps.insert(0, progress.step)
            epochs.insert(0, progress.epoch)
        self.events = Events()
        self.kept = [Start(self._start(progress)), self._function(steps), self._function(epochs)]
        if progress:
            self.events.start = self.kept[0]
        if progress or on_step:
            self.events.step = self.kept[1]
        if progress or on_epoch:
            self.events.epoch = self.kept[2]

    @staticmethod
    def _start(progress):
        return lambda _, text: progress.start(json.loads(text))

    def _function(self, functions):
        """Returns a function for the library to call at an event. An exception must not reach the library: it is kept, and raised later."""
        ended = []
        def called(_, text):
            if ended:                       # steps in flight complete after the end
                return ended[0]
            result = call(text)
            if result != GO_ON:
                ended.append(result)
            return result

        def call(text):
            try:
                event = json.loads(text)
                for function in functions:
                    result = function(event) if function else None
                    if result is Stop or isinstance(result, Stop):
                        return END
            except Stop:
                return END
            except BaseException as why:      # pylint: disable=broad-except
                self.raised = self.raised or why
                return BREAK
            return GO_ON
        return Event(called)


class Progress:
    """Draws a line with the current step, loss, speed and remaining time, and prints a line for each epoch, to FILE. If FILE is
    neither a terminal nor a notebook, it prints only the lines of the epochs."""

    def __init__(self, file=None):
        self.file = file or sys.stdout
        self.draws = getattr(self.file, "isatty", lambda: False)() or "ipykernel" in sys.modules
        self.begun = self.drawn = time.monotonic()
        self.first = self.width = 0
        self.run = {}

    def start(self, event):
        self.run, self.first, self.begun = event, event["step"], time.monotonic()

    def step(self, event):
        now = time.monotonic()
        if not self.draws or now - self.drawn < 0.1:
            return
        self.drawn = now
        done, all_steps = event["step"], self.run["steps"]
        left = round((now - self.begun) / (done - self.first) * (all_steps - done))
        self._draw(f"step {done}/{all_steps}  loss {_number(event['loss'])}  {event['samples_per_second']:.0f} samples/s  "
                   f"{left // 60}:{left % 60:02d} left")

    def epoch(self, event):
        self._draw("")
        whole = event["epoch"] % 1 == 0 == self.run["epochs"] % 1
        done = f"epoch {event['epoch']:g}/{self.run['epochs']:g}" if whole else f"step {event['step']}/{self.run['steps']}"
        parts = [done, f"loss {_number(event['train_loss'])}"]
        parts += [f"{name.replace('_', ' ', 1)} {_number(value)}" for name, value in event.items() if name.startswith("test_")]
        print("  ".join([*parts, f"{event['seconds']:.1f} s"]), file=self.file, flush=True)

    def _draw(self, line):
        if self.draws:
            self.file.write("\r" + line.ljust(self.width) + ("" if line else "\r"))
            self.file.flush()
            self.width = len(line)


def _number(value):
    return "nan" if value is None else f"{value:.4g}"
