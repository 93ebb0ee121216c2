"""What is broken, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    """of the run as well"""
    alert: str
    """"": none may come"""
    incident: str = ""
    """class that /api/v1/status must show; "" where the process is not there to ask"""
    param: str = ""
    element: int | None = None
    needs: str = ""
    """option without which this build has no such detector"""
    ends: str = ""
    """how the process ends: killed, terminated, by itself, of it; "" where it goes on"""
    also: tuple[str, ...] = ()
    """alerts that may come besides"""


FAULTS = (
    Fault("nan_gradient", "GradvaneTrainingNonFinite", "nonfinite_grad", "body.weight", 13),
    Fault("inf_loss", "GradvaneTrainingLossNonFinite", "nonfinite_loss"),
    Fault("exploding_norm", "GradvaneGradientNormExploding", "grad_exploding", needs="exploding_factor"),
    Fault("stall", "GradvaneTrainingStalled", "stalled"),
    Fault("killed", "GradvaneTrainingTargetDown", ends="killed"),
    Fault("terminated", "GradvaneTrainingRunTerminated", ends="terminated"),
    # Gone a tenth of a second after the step, between two scrapes.
    Fault("dies_of_nan", "GradvaneTrainingNonFinite", param="body.weight", element=13, ends="of it",
          also=("GradvaneTrainingRunFailed",)),
    Fault("overflow", "GradvaneAmpOverflowStreak", "amp_overflow", needs="overflow_streak"),
    Fault("healthy", ""),
    # Its target stays on the list, as on a fixed one.
    Fault("finished", "", ends="by itself"),
)


@dataclass
class Outcome:
    """What did come of it."""

    fault: Fault
    not_run: str = ""
    """why, if it was not"""
    step: int | None = None
    """at which it was broken"""
    incident: dict[str, object] | None = None
    others: tuple[str, ...] = ()
    """classes of other incidents"""
    told_after: float | None = None
    """seconds from the fault to the webhook"""
    resolved_after: float | None = None
    """seconds from then on"""
    told: int = 0
    """firing notifications of the alert"""
    surprises: tuple[str, ...] = ()
    """alerts that should not have come"""
    description: str = ""

    @property
    def first_named(self) -> str:
        if self.incident is None:
            return ""
        named = str(self.incident.get("param", ""))
        return f"{named}[{self.incident['element']}]" if named and "element" in self.incident else named

    def faults(self) -> list[str]:
        """What is wrong with it, for a person; nothing where all is as it must be."""
        if self.not_run:
            return [f"not run: {self.not_run}"]
        wrong = [f"also fired: {name}" for name in self.surprises]
        want = self.fault
        if not want.alert:
            return wrong + [f"incident of class {name}" for name in self.others]
        if self.told != 1:
            wrong.append(f"{want.alert} was told {self.told} times, not once")
        if self.told_after is not None and self.told_after > 10:
            wrong.append(f"told after {self.told_after:.1f} s, later than 10 s")
        if self.told and self.resolved_after is None:
            wrong.append("never resolved")
        if want.param and f"element {want.element} of {want.param}" not in self.description:
            wrong.append(f"the notification does not name the element: {self.description}")
        if want.incident:
            wrong += self._incident_faults()
        return wrong

    def _incident_faults(self) -> list[str]:
        want = self.fault
        if self.incident is None:
            return [f"no incident of class {want.incident} in /api/v1/status"]
        wrong = [f"incident of class {name} besides" for name in self.others]
        if want.param and self.incident.get("param") != want.param:
            wrong.append(f"names {self.incident.get('param')}, not {want.param}")
        if want.element is not None and self.incident.get("element") != want.element:
            wrong.append(f"names element {self.incident.get('element')}, not {want.element}")
        if self.step is not None and want.alert.endswith("NonFinite") and self.incident["first_step"] != self.step:
            wrong.append(f"says step {self.incident['first_step']}, not {self.step}")
        return wrong
