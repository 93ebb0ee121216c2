"""Programs in which another tool watches, patches or wraps what the agent looks at too."""

from program import WITHOUT_ATTACH, Program

WRAPS_TORCH = '''
import importlib.abc, sys
class Wrap(importlib.abc.MetaPathFinder):
    """As tools do that act after an import: another finder's loader, with an exec_module of its own."""
    def find_spec(self, name, path, target=None):
        if name != "torch" or self.is_busy:
            return None
        self.is_busy = True
        import importlib.util
        spec = importlib.util.find_spec(name)
        original = spec.loader.exec_module
        def exec_module(module):
            print("before torch")
            original(module)
            print("after torch", hasattr(module, "nn"))
        spec.loader.exec_module = exec_module
        return spec
    is_busy = False
'''


def patch(name: str, owner: str, attribute: str, when: str) -> Program:
    """A tool that replaces a function of torch's, before or after the agent comes, and takes its patch back."""
    put = f"""
    calls = []
    original = {owner}.{attribute}
    def patched(*args, **kwargs):
        calls.append(1)
        return original(*args, **kwargs)
    {owner}.{attribute} = patched
    """
    check = f"""
    model.eval().train()
    tiny.train(model, optimizer, 2, torch.nn.utils.clip_grad_norm_)
    print(list(torch.utils.data.DataLoader(range(3))))
    torch.save(0, "saved.pt")
    print(len(calls))
    {owner}.{attribute} = original
    tiny.train(model.eval().train(), optimizer, 2)
    print(len(calls))
    """
    if when == "before":
        return Program(f"{name} is patched before the agent comes", check, before=put)
    return Program(f"{name} is patched after the agent has come", put + check, before="pass", together="later patches")


PROGRAMS = [
    Program("another import hook wraps torch's loader, in front", WRAPS_TORCH + """
sys.meta_path.insert(0, Wrap())
import torch, tiny, witness
model, optimizer = tiny.make()
tiny.train(model, optimizer)
witness.look("end", model, optimizer)
""", is_script=True, ways=WITHOUT_ATTACH),
    Program("another import hook wraps torch's loader, behind", WRAPS_TORCH + """
sys.meta_path.append(Wrap())
sys.meta_path.insert(len(sys.meta_path) - 2, sys.meta_path.pop())
import torch, tiny, witness
model, optimizer = tiny.make()
tiny.train(model, optimizer)
witness.look("end", model, optimizer)
""", is_script=True, ways=WITHOUT_ATTACH),
    patch("Optimizer.step of a class", "torch.optim.SGD", "step", "before"),
    patch("Optimizer.zero_grad", "torch.optim.Optimizer", "zero_grad", "before"),
    patch("Module.train", "torch.nn.Module", "train", "before"),
    patch("Tensor.backward", "torch.Tensor", "backward", "before"),
    patch("torch.autograd.backward", "torch.autograd", "backward", "before"),
    patch("clip_grad_norm_", "torch.nn.utils", "clip_grad_norm_", "before"),
    patch("torch.save", "torch", "save", "before"),
    patch("The iterator of DataLoader", "torch.utils.data.dataloader._BaseDataLoaderIter", "__next__", "before"),
    patch("Optimizer.step of a class", "torch.optim.SGD", "step", "after"),
    patch("Optimizer.zero_grad", "torch.optim.Optimizer", "zero_grad", "after"),
    patch("Module.train", "torch.nn.Module", "train", "after"),
    patch("Tensor.backward", "torch.Tensor", "backward", "after"),
    patch("torch.autograd.backward", "torch.autograd", "backward", "after"),
    patch("clip_grad_norm_", "torch.nn.utils", "clip_grad_norm_", "after"),
    patch("torch.save", "torch", "save", "after"),
    patch("The iterator of DataLoader", "torch.utils.data.dataloader._BaseDataLoaderIter", "__next__", "after"),
    Program("modules are imported late, and one of them is not there", """
        import sys
        finders, hooks = list(sys.meta_path), list(sys.path_hooks)
        tiny.train(model, optimizer)
        import colorsys
        try:
            import no_such_module
        except ImportError as error:
            print(error, error.name, error.__traceback__.tb_next)
        print(colorsys.__spec__, sys.meta_path == finders, sys.path_hooks == hooks)
        """, together="tools within"),
    Program("warnings are errors", "tiny.train(model, optimizer)", arguments=("-W", "error", "train.py"),
            ways=("plain", "attach", "attach, detach")),
    Program("the program sets up its own logging", """
        import logging
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
        logging.getLogger("train").info("a line of the program's own")
        tiny.train(model, optimizer)
        """),
    Program("a trace function and a profile function are set", """
        calls = set()
        def seen(frame, event, arg):
            if frame.f_code.co_filename.endswith("tiny.py"):
                calls.add((frame.f_code.co_name, event))
            return seen
        sys.settrace(seen)
        tiny.train(model, optimizer)
        sys.settrace(None)
        sys.setprofile(seen)
        tiny.train(model, optimizer)
        sys.setprofile(None)
        print(sorted(calls))
        """, together="tools within"),
    Program("anomaly detection is on", """
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            tiny.train(model, optimizer)
        """, together="tools within"),
    Program("PyTorch's profiler runs for some steps", """
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            tiny.train(model, optimizer)
        print(sorted((event.key, event.count) for event in seen.key_averages() if "Optimizer" in event.key))
        """, together="tools within"),
    Program("memory is traced, the collector is off", """
        import gc, tracemalloc
        tracemalloc.start()
        gc.disable()
        tiny.train(model, optimizer)
        gc.enable()
        tracemalloc.stop()
        """, together="tools within"),
    Program("model and optimizer are copied, pickled and saved", """
        import copy, io, pickle
        tiny.train(*copy.deepcopy((model, optimizer)))
        tiny.train(*pickle.loads(pickle.dumps((model, optimizer))))
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        print(len(file.getvalue()), sorted(vars(model)), sorted(vars(optimizer)))
        tiny.train(model, optimizer)
        """, together="tools within"),
    Program("model and optimizer are freed when the program drops them", """
        import gc, weakref
        def train():
            other = tiny.make(seed=3)
            tiny.train(*other)
            return [weakref.ref(thing) for thing in (*other, other[0][0].weight)]
        known = train()
        gc.collect()
        print([one() for one in known])
        """, together="tools within"),
    Program("the model is scripted, traced and run by torch.func", """
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(torch.jit.trace(model.eval(), torch.ones(1, 4))(torch.ones(1, 4)).item())
        def loss(params):
            return torch.func.functional_call(model, params, (torch.ones(1, 4),)).sum()
        print(sorted(torch.func.grad(loss)(dict(model.named_parameters()))))
        model.train()
        tiny.train(model, optimizer)
        """, together="tools within"),
    Program("modes that see each call of torch", """
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode

        class Functions(TorchFunctionMode):
            seen = []
            def __torch_function__(self, function, types, args=(), kwargs=None):
                self.seen.append(getattr(function, "__qualname__", str(function)))
                return function(*args, **(kwargs or {}))

        class Operators(TorchDispatchMode):
            seen = []
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                self.seen.append(str(function))
                return function(*args, **(kwargs or {}))

        with Functions():
            tiny.train(model, optimizer)
        with Operators():
            tiny.train(model, optimizer)
        for what in (Functions, Operators):
            print(len(what.seen), sorted(set(what.seen)))
        """, together="tools within"),
]
