"""What the workers of executors run: without TensorFlow, whose import takes seconds."""


def identity(x):
    return x


def collatz(starts):
    """A step of each start's sequence at a time, in pure Python; how many steps there were."""
    steps = 0
    for start in starts.tolist():
        number = int(start)
        while number != 1:
            number = 3 * number + 1 if number % 2 else number // 2
            steps += 1
    return starts * 0 + steps
