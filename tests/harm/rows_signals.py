"""Programs that get signals: the same one must end them, or not, and their own handlers must run."""

import signal

from program import ON_UNIX_SOCKET, ONE_OF_TWO, Act, Place, Program, with_tls

TRAIN_ON = """
def train_on():
    way.mark("ready")
    for _ in range(3000):
        tiny.step(model, optimizer)
        time.sleep(0.01)
"""
LOOP = "train_on()"
HOW_FAR = dict.fromkeys(("weights", "random numbers"), "how far the loop gets")


def in_the_loop(name: str, *signals: signal.Signals | str, before: str = "", body: str = LOOP, pause: float = 0.0,
                **how: object) -> Program:
    return Program(name, body, before=before, top=TRAIN_ON,
                   acts=tuple(Act(what, pause=pause if i else 0.1) for i, what in enumerate(signals)),
                   **how)  # type: ignore[arg-type]


CATCHES = """
def caught(number, frame):
    print("caught", signal.Signals(number).name, flush=True)
    sys.exit(5)
"""

PROGRAMS = [
    in_the_loop("SIGTERM in the loop", signal.SIGTERM),
    in_the_loop("SIGTERM twice in the loop", signal.SIGTERM, signal.SIGTERM),
    in_the_loop("SIGINT in the loop", "Ctrl-C", differs={
        "standard error": "the line of the traceback that runs when the signal comes is another each time"}),
    in_the_loop("SIGTERM in the loop of a rank that serves the port of its machine", signal.SIGTERM,
                place=Place(environment=ONE_OF_TWO)),
    in_the_loop("SIGTERM in the loop, and the endpoint has TLS and passwords", signal.SIGTERM, place=with_tls()),
    in_the_loop("SIGTERM in the loop, and the endpoint is a unix socket", signal.SIGTERM, place=ON_UNIX_SOCKET),
    in_the_loop("SIGUSR1 in the loop", signal.SIGUSR1),
    in_the_loop("SIGHUP in the loop", signal.SIGHUP),
    in_the_loop("SIGQUIT in the loop", signal.SIGQUIT),
    in_the_loop("stopped for a moment, continued, and terminated", signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM,
                pause=0.5),
    in_the_loop("SIGTERM while the optimizer is at work", signal.SIGTERM, body="""
        def slow(*_):
            way.mark("ready")
            time.sleep(30)
        optimizer.register_step_pre_hook(slow)
        tiny.step(model, optimizer)
        """),
    in_the_loop("SIGTERM that the program ignores since before", signal.SIGTERM,
                before="signal.signal(signal.SIGTERM, signal.SIG_IGN)", body="""
        way.mark("ready")
        time.sleep(2)
        tiny.train(model, optimizer)
        print("still here")
        """),
    in_the_loop("SIGTERM with a handler from before", signal.SIGTERM,
                before=CATCHES + "signal.signal(signal.SIGTERM, caught)"),
    in_the_loop("SIGTERM with a handler from later", signal.SIGTERM,
                body=CATCHES + "signal.signal(signal.SIGTERM, caught)\n" + LOOP),
    in_the_loop("SIGTERM with a handler that came and went", signal.SIGTERM, body="""
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGTERM, before)
        """ + LOOP),
    in_the_loop("SIGTERM in an asyncio program with a handler", signal.SIGTERM, body="""
        import asyncio
        async def main():
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            way.mark("ready")
            while not stop.is_set():
                tiny.step(model, optimizer)
                await asyncio.sleep(0.01)
            print("stopped by the signal")
        asyncio.run(main())
        """, differs=HOW_FAR),
    in_the_loop("SIGTERM when two agents have come one after the other", signal.SIGTERM, body="""
        way.end_agent()
        other = tiny.make(seed=1)
        way.attach(*other)
        tiny.train(*other)
        """ + LOOP),
    in_the_loop("SIGTERM when the only agent has gone", signal.SIGTERM, body="way.end_agent()\n" + LOOP),
    in_the_loop("Ctrl-C that the program catches to save its work", "Ctrl-C", body="""
        try:
            train_on()
        except KeyboardInterrupt:
            print("saved")
        """, differs=HOW_FAR),
    in_the_loop("Ctrl-C twice, the second while the program saves", "Ctrl-C", "Ctrl-C", pause=0.5, body="""
        try:
            train_on()
        except KeyboardInterrupt:
            print("saving", flush=True)
            try:
                time.sleep(30)
            except KeyboardInterrupt:
                print("not saved")
        """, differs=HOW_FAR),
    Program("an alarm of the program's own", """
        def late(number, frame):
            raise TimeoutError("too late")
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            time.sleep(30)
        except TimeoutError as error:
            print(error)
        """, together="signals within"),
    Program("SIGUSR1 and SIGUSR2 with handlers of the program's own", """
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda number, frame: print("caught", signal.Signals(number).name))
            os.kill(os.getpid(), number)
            tiny.step(model, optimizer)
            signal.signal(number, signal.SIG_DFL)
        """, together="signals within"),
    Program("a handler in C hears of SIGTERM by its wake-up descriptor", """
        import socket
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        signal.signal(signal.SIGTERM, lambda *_: None)
        before = signal.set_wakeup_fd(ends[0].fileno())
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        print(before, list(ends[1].recv(10)))
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for end in ends:
            end.close()
        """, together="signals within",
            differs={"signals": "SIGTERM has its default action again, in the live agent's place"}),
    Program("Ctrl-C when the script is over and the agent waits for one more scrape", """
        way.mark("scrape")
        time.sleep(2)
        way.mark("over")
        """, acts=(Act("scrape", after="scrape"), Act("Ctrl-C", after="over", pause=3)), seconds=10),
    Program("SIGTERM when the script is over and the agent waits for one more scrape", """
        way.mark("scrape")
        time.sleep(2)
        way.mark("over")
        """, acts=(Act("scrape", after="scrape"), Act(signal.SIGTERM, after="over", pause=3)), seconds=10,
            differs={"end": "without an agent the program is over before the signal comes"}),
    Program("the program goes on after its agent has been scraped and detached", """
        way.mark("scrape")
        time.sleep(1)
        way.end_agent()
        tiny.train(model, optimizer)
        """, acts=(Act("scrape", after="scrape"),), seconds=9),
    Program("a signal that is blocked after attach, and waited for", """
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
            os.kill(os.getpid(), number)
            time.sleep(0.2)
            print(number in signal.sigpending(), signal.sigwait({number}).name)
        """),
    Program("SIGSEGV with faulthandler", """
        import faulthandler
        faulthandler.enable()
        os.kill(os.getpid(), signal.SIGSEGV)
        """, differs={"standard error": "the list of threads and loaded modules"}),
    Program("SIGABRT", "os.abort()"),
]
