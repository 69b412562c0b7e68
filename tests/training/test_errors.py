"""The first signal stops training cleanly; the second ends the process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from loopkit.training.errors import Interrupted, NotFinite
from loopkit.training.signals import EvaluationStopped, Signals


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_ends_the_process(signum: signal.Signals) -> None:
    before = signal.getsignal(signum)
    with Signals() as signals:
        assert signals.received is None
        os.kill(os.getpid(), signum)
        assert signals.received == signum
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signum)
        assert ended.value.code == 128 + signum
    assert signal.getsignal(signum) is before


def test_first_signal_stops_an_evaluation() -> None:
    with Signals() as signals:
        with pytest.raises(EvaluationStopped), signals.stopping_evaluation():
            os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM
        with pytest.raises(EvaluationStopped), signals.stopping_evaluation():
            raise AssertionError("an evaluation must not start after a signal")


def test_signals_are_not_handled_outside_main_thread() -> None:
    def work() -> None:
        with Signals() as signals:
            signals_received.append(signals.received)

    signals_received: list[int | None] = []
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert signals_received == [None]
    assert signal.getsignal(signal.SIGINT) is before


def test_exit_codes_differ_and_messages_name_the_checkpoint() -> None:
    stopped = [Interrupted(number, 7, Path("c")) for number in (signal.SIGINT, signal.SIGTERM)]
    assert [error.exit_code for error in stopped] == [130, 143]
    assert "SIGTERM after step 7; saved c" in str(stopped[1])
    fault = NotFinite(12, "the state of loop 3 is nan", Path("runs/x/checkpoints/step-00000010"))
    assert fault.exit_code == 3
    assert "step 12: the state of loop 3 is nan" in str(fault)
    assert "step-00000010" in str(fault)
    assert "no checkpoint was written" in str(NotFinite(1, "the loss is inf", None))
