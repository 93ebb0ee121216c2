"""The few shapes that the rules are made of.

`max without (...)` joins the series of one process and skips NaN, where a sum would become NaN; labels that
scraping added (pod, namespace) stay.
"""

from __future__ import annotations

from alert_rules.windows import Windows

INCIDENTS = "gradvane_incidents_total"
OPEN = "gradvane_incidents_open"
INFO = "gradvane_incident_info"


def selector(metric: str, *matchers: str) -> str:
    return metric + ("{" + ",".join(matchers) + "}" if matchers else "")


def one_of(label: str, values: tuple[str, ...]) -> str:
    return f'{label}="{values[0]}"' if len(values) == 1 else f'{label}=~"{"|".join(values)}"'


def grew(series: str, windows: Windows) -> str:
    """By how much the counter is above what it was before the window.

    A series that was never seen before counts from 0: increase() says nothing of a counter that is born with
    1. So does one that is lower than it was: it restarted. One that was not scraped for a while counts from its
    last value. The count itself outlives the process by the window.
    """
    now = f"last_over_time({series}[{windows.event}])"
    before = f"last_over_time({series}[{windows.memory}] offset {windows.event})"
    return f"{now} - ({before} <= {now} or {now} * 0)"


def latest(series: str, windows: Windows) -> str:
    """The value, also of a process that is gone by now."""
    return f"last_over_time({series}[{windows.told}])"


def event(series: str, without: str, windows: Windows) -> str:
    """True while the counter rose within the window. increase() sees counters that restarted."""
    # max without () is nothing but the same series without its name.
    return (f"max without ({without}) (increase({series}[{windows.event}])) > 0\n"
            f"or\nmax without ({without}) ({grew(series, windows)}) > 0")


def incident(classes: tuple[str, ...], windows: Windows) -> str:
    """True while an incident is open, and for a window after one opened: it may be over before a scrape."""
    which = one_of("class", classes)
    return (f"max without (class) ({selector(OPEN, which)}) > 0\nor\n"
            + event(selector(INCIDENTS, which), "class", windows))


# The series of the process that the alert is about.
SAME = ("job=%[1]q", "instance=%[2]q", "run=%[3]q", "rank=%[4]q")
SAME_VALUES = "$labels.job $labels.instance $labels.run $labels.rank"


def asked(query: str) -> str:
    """A query of a template: what `query` is given. `query` holds SAME's placeholders."""
    return f"printf `{query}` {SAME_VALUES} | query"


def number(query: str, sentence: str, form: str = 'printf "%.0f"') -> str:
    """The sentence with the query's value for {}, nothing where there is none."""
    value = "{{ . | first | value | " + form + " }}"
    return "{{- with " + asked(query) + " }} " + sentence.replace("{}", value) + "{{ end }}"


def story(classes: tuple[str, ...], windows: Windows) -> str:
    """Where the latest incident began. Of several classes only those that matter now."""
    which = one_of("class", classes)
    info = selector(INFO, which, *SAME)
    query = f"{info} or on (class) {latest(info, windows)}"
    if len(classes) > 1:
        total = selector(INCIDENTS, which, *SAME)
        query = f"({query}) and on (class) ({selector(OPEN, which, *SAME)} > 0"
        query += f" or increase({total}[{windows.event}]) > 0 or {grew(total, windows)} > 0)"
    place = ("{{ if .Labels.param }}{{ if .Labels.element }}element {{ .Labels.element }} of {{ end }}"
             "{{ .Labels.param }}{{ else }}the {{ .Labels.site }}{{ end }}")
    return (
        "{{- range " + asked(query) + " }} It began at step {{ .Labels.step }}"
        "{{ if .Labels.kind }}: {{ .Labels.kind }} in " + place +
        "{{ else if .Labels.param }}: {{ .Labels.param }}{{ end }}"
        "{{ if .Labels.group }}, group {{ .Labels.group }}{{ end }}"
        "{{ if .Labels.began_in }}, in the {{ .Labels.began_in }}"
        '{{ if ne .Labels.began_in "update" }} pass{{ end }}{{ end }}'
        "{{ if .Labels.module }}, first seen at module {{ .Labels.module }}{{ end }}.{{ end }}"
    )


WHO = "Run {{ $labels.run }}, rank {{ $labels.rank }}:"


def incidents_so_far(classes: tuple[str, ...], windows: Windows) -> str:
    query = f"sum({latest(selector(INCIDENTS, one_of('class', classes), *SAME), windows)})"
    return number(query, "Incidents of this kind since the process started: {}.")
