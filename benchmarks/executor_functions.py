"""The functions that executors' workers run, without TensorFlow, whose import takes seconds."""


def identity(x):
    return x


def collatz(starts):
    """Run the Collatz sequence of each start in pure Python; return the number of all steps."""
    steps = 0
    for start in starts.tolist():
        number = int(start)
        while number != 1:
            number = 3 * number + 1 if number % 2 else number // 2
            steps += 1
    return starts * 0 + steps
