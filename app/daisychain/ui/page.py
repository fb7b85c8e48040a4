"""The page: what a person sees of a session, and how they steer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from daisychain import platform
from daisychain.data import OwnFile
from daisychain.data.spec import OWN_FILE
from daisychain.errors import DaisyChainError
from daisychain.export.checkpoint import Checkpoint
from daisychain.export.saves import room_digest
from daisychain.platform.dom import Dom, Node
from daisychain.settings import Settings, parse_query
from daisychain.ui import links, phases, stages
from daisychain.ui.backing import Backing, RoomEntry
from daisychain.ui.copying import Copier
from daisychain.ui.going_on import GoingOn
from daisychain.ui.join import JoinForm
from daisychain.ui.log import json_lines
from daisychain.ui.messages import Announcer, ErrorPanel, Notices, Trouble, too_large
from daisychain.ui.model_use import ModelUse
from daisychain.ui.pace import Pace
from daisychain.ui.publisher import Publisher
from daisychain.ui.refresh import Refresher
from daisychain.ui.room import Room, own_name, own_room
from daisychain.ui.run_view import RunView
from daisychain.ui.runs import JOINED_MARK, TRAINING_MARK, Runs, after_a_killed_tab
from daisychain.ui.settings_form import SettingsForm
from daisychain.ui.turn_form import TurnForm
from daisychain.ui.welcome import WayIn, Welcome


class Page:
    """Builds the page, starts and steers one session at a time, and publishes its state."""

    def __init__(self, dom: Dom, backing: Backing) -> None:
        self._dom, self._backing = dom, backing
        settings, refused = parse_query(urlsplit(platform.page_url()).query)
        settings, warned = after_a_killed_tab(settings)
        self._notices_of_page = [*refused, *warned]
        self._may_begin = not warned
        self._runs = Runs(self._changed, self._ended)
        self._publisher = Publisher()
        self._again: Callable[[], object] = self.start
        self._joining = False
        self._settings_of_run = settings
        self._phase_drawn = ""
        self._copy = Copier(dom).copy
        self._refresher = Refresher(self._draw)
        self._telling = Refresher(self._tell)
        self._estimates = Refresher(self._draw_estimate)
        self._pace = Pace(lambda s: backing.estimate(s).multiplies_per_step)
        self._misfit = ""
        self._build(settings)

    # --- the page's own life

    def mount(self) -> None:
        """Puts the page in place and begins at once where the link says so."""
        self._dom.find("app").replace(*self._sections)
        self._dom.find("controls").replace(*self._controls.values())
        self._dom.find("phase").replace(self._phase)
        platform.on_page_event(self._page_event)
        self._form_changed(write_link=False)
        self._estimates.now()
        self._publish()
        start, code = self._form.settings.start, links.room_in_page()
        if start == "join" or (not start and code):
            self._ask_for_code(links.code_in_page())
            if start and code and self._may_begin:
                self._enter(RoomEntry("member", code, ""))
        elif start == "solo" and self._may_begin:
            self._going_on.look(self.start)
            return
        elif start == "room" and code and self._may_begin:
            self._going_on.look(self.open_room, room_digest(code))
            return
        elif start in self._ways and self._may_begin:
            self._ways[start].begin()
        self._going_on.look()

    def attach_chart(self, script: Any) -> None:
        """Draws the chart with the module chart.js."""
        chart = self._run.chart
        chart.attach(
            script.openChart(
                chart.canvas.raw,
                self._dom.to_proxy(chart.on_cursor),
                self._dom.to_proxy(chart.on_zoom),
            )
        )

    def notify(self, sentence: str) -> None:
        """Adds a notice."""
        self._notices_of_page.append(sentence)
        self._refresher.mark()
        self._publish()

    def offer(self, make: Callable[[Dom], Node]) -> None:
        """Adds something to choose before a run."""
        self._welcome.root.append(make(self._dom))

    # --- steering

    def start(self) -> None:
        """Begins a run on this device alone with the settings of the form."""
        settings, file = self._form.settings, self._form.data.file
        if self._form.data.missing:
            self.notify("Choose the file to learn from, then tap Train solo.")
        else:
            self._begin_alone(settings, file, None, self.start)

    def _go_on(self, checkpoint: Checkpoint, settings: Settings, together: bool) -> None:
        """Goes on from a checkpoint in a room or on this device alone."""
        self._turn_away()  # from a room that it looked for in vain
        if together:
            self._enter(own_room(), settings, checkpoint)
            return
        links.show_place(self._form.settings, "")
        file = self._form.data.file
        if settings.data == OWN_FILE and file is None:
            self._form.enter("data", OWN_FILE)
            self.notify("Choose the file that the run learns from, then go on.")
            return
        again = partial(self._go_on, checkpoint, settings, False)
        self._begin_alone(settings, file, checkpoint, again)

    def _begin_alone(
        self,
        settings: Settings,
        file: OwnFile | None,
        resumed: Checkpoint | None,
        again: Callable[[], object],
    ) -> None:
        make = self._backing.make_session
        if self._runs.begin(lambda: make(settings, file, resumed), settings.preset):
            self._begun(settings, again)

    def open_room(self) -> None:
        """Begins a room with the settings of the form, under the code of the page or a new one."""
        if self._form.settings.data == OWN_FILE:
            self.notify("A room needs text that every device can get: choose another source.")
            return
        self._enter(own_room())

    def _enter(
        self, entry: RoomEntry, given: Settings | None = None, resumed: Checkpoint | None = None
    ) -> None:
        """Opens or enters a room, with the settings of the form unless others are given."""
        settings = given or self._form.settings
        entry = replace(entry, name=entry.name or own_name(settings))

        def make() -> Any:
            session = self._backing.make_room(settings, entry, resumed)
            self._room.enter(session, settings, entry)
            return session

        host = entry.role == "host"
        if self._runs.begin(make, settings.preset if host else JOINED_MARK):
            links.show_place(settings, "room" if host else "join", entry.code)
            again = replace(entry, new_code=False)
            self._begun(settings, partial(self._enter, again, given, resumed))

    def _begun(self, settings: Settings, again: Callable[[], object]) -> None:
        self._settings_of_run, self._again = settings, again
        self._joining = False
        self._join.close()
        self._run.clear()
        self._pace.begin()
        self._publisher.clear()

    def _ask_for_code(self, code: str = "") -> None:
        """Shows the form for entering a room."""
        self._joining = True
        self._join.open(code, own_name(self._form.settings))
        self._refresher.mark()

    def _turn_away(self) -> None:
        self._runs.forget()
        self._room.leave()

    def _leave_run(self) -> None:
        """Back to the welcome, with the settings as they were."""
        way = self._way_in()
        self._turn_away()
        links.show_place(self._form.settings, "")
        self._joining = False
        self._publish()
        self._form.data.count_kept()
        self._going_on.look()
        self._draw_estimate()
        self._refresher.now()
        self._welcome.buttons[way].focus()

    def _leave_room(self) -> None:
        """Out of the room; what was trained stays in sight."""
        if self.state().get("step"):
            links.show_place(self._form.settings, "")
            self._steer("leave")
        else:
            self._leave_run()

    def _correct_code(self) -> None:
        code = links.code_in_page()
        self._leave_run()
        self._ask_for_code(code)

    def _way_in(self) -> str:
        """How the person came to where the page stands now."""
        role = str((self.state().get("room") or {}).get("role"))
        return "join" if self._joining else {"host": "room", "member": "join"}.get(role, "solo")

    def _steer(self, action: str) -> None:
        if self._runs.session is not None:
            getattr(self._runs.session, action)()
            self._changed()

    # --- what is shown

    def state(self) -> dict[str, Any]:
        """The plain data behind ``window.daisychain.state()``."""
        session, trouble = self._runs.session, self._runs.trouble
        if session is not None:
            state = dict(session.state())
        else:
            state = phases.idle_state(self._form.settings)
        if trouble is not None:
            state |= {"phase": "error", "error": trouble.sentence()}
        state["notices"] = [*self._notices_of_page, *(state.get("notices") or [])]
        return state

    def _phase_shown(self, state: Mapping[str, Any]) -> str:
        """A run that is over is idle again; the page then shows what it did."""
        phase = str(state["phase"])
        if self._runs.session is None or phase != "idle":
            return phase
        return "check" if self._runs.running and not state.get("step") else phases.END

    def _records(self) -> Sequence[Mapping[str, Any]]:
        session = self._runs.session
        return session.log() if session is not None else ()

    def _changed(self) -> None:
        self._telling.mark(eager=True)
        self._refresher.mark()

    def _tell(self) -> None:
        """A room changes many times a step, and its state takes milliseconds to put together."""
        self._room.hear(self._publish())

    def _ended(self) -> None:
        self._publish()
        self._refresher.now()
        if self._runs.session is None:
            self._going_on.look()  # it may have saved since it was left

    def _publish(self) -> dict[str, Any]:
        state = self.state()
        self._publisher.publish(state, self._records())
        return state

    def _draw(self) -> None:
        state = self.state()
        phase = state["phase"] = self._phase_shown(state)
        records = self._records()
        self._dom.title(phases.title(state, phase))
        if not platform.is_visible():
            return
        trouble = self._trouble(state)
        running = phase != "idle" and not (trouble is not None and not records)
        self._notices.draw([*state["notices"], *([self._misfit] if self._misfit else [])])
        self._error.draw(trouble, *stages.ways_on(state))
        self._heading.show(phase != "idle")
        self._welcome.root.show(phase == "idle" and not self._joining)
        self._join.root.show(phase == "idle" and self._joining)
        self._run.root.show(running)
        self._phase.text(phases.name(state))
        self._phase.attribute("data-phase", phase)
        wanted = phases.controls(state)
        for name, button in self._controls.items():
            button.show(name in wanted)
        if running:
            self._run.draw(state, records, self._settings_shown())
            if not state.get("room"):
                self._pace.watch(self._settings_shown(), records)
        in_vain = running and self._room.in_vain
        self._offer.show(phase == "idle" or (in_vain and self._going_on.is_of_room()))
        if phases.name(state) != self._phase_drawn:
            self._phase_drawn = phases.name(state)
            self._announcer.say(self._phase_drawn)

    def _settings_shown(self) -> Settings:
        """Those of the run; a room's are its host's."""
        session = self._runs.session
        return session.settings if session is not None else self._settings_of_run

    def _trouble(self, state: Mapping[str, Any]) -> Trouble | None:
        if self._runs.trouble is not None:
            return self._runs.trouble
        trouble = stages.trouble(state)
        if trouble is None and state["phase"] == "error":
            trouble = Trouble.from_text(str(state.get("error")))
        return trouble

    def _form_changed(self, write_link: bool = True) -> None:
        settings = self._form.settings
        if write_link:
            links.show_settings(settings)
        fits = not self._form.refused
        self._welcome.allow(
            solo=fits and not self._form.data.missing,
            room=fits and settings.data != OWN_FILE,
            join=True,
        )
        self._estimates.mark()
        if self._runs.session is None and write_link:
            self._publish()

    def _draw_estimate(self) -> None:
        """Building a program takes up to a tenth of a second, so not at each touch of a key."""
        settings = self._form.settings
        self._misfit = ""
        try:
            estimate = self._backing.estimate(settings)
            self._welcome.draw(settings, estimate)
            self._misfit = too_large(estimate.memory_bytes, platform.memory_bytes())
        except DaisyChainError as error:
            self._misfit = str(error)
            self._welcome.draw(settings)
        self._refresher.mark()

    # --- copying and saving

    def _copy_log(self) -> None:
        text = json_lines(self._records())
        self._copy(text, f"{len(self._records()):,} lines copied", self._run.log.said)

    def _download_log(self) -> None:
        data = json_lines(self._records()).encode()
        platform.save_file(f"{self._file_name()}.jsonl", data, "application/x-ndjson")

    def _file_name(self) -> str:
        settings = self._settings_shown()
        return f"daisychain-{settings.preset}-seed{settings.seed}"

    def _copy_settings_link(self) -> None:
        self._copy(links.run_link(self._form.settings), "Link copied", self._welcome.said)

    def _copy_run_link(self) -> None:
        self._copy(links.run_link(self._settings_shown()), "Link copied", self._run.card.said)

    def _page_event(self, name: str) -> None:
        if name == "visible":
            self._refresher.mark()
        elif name == "pagehide":  # a reload or a closed tab is no crash
            platform.storage_remove(TRAINING_MARK)

    # --- the parts

    def _build(self, settings: Settings) -> None:
        dom = self._dom
        solo = WayIn("solo", "Train solo", "On this device alone, at once.", self.start)
        room = WayIn(
            "room",
            "Start a room",
            "Other devices join by a link or a code; all train one model together.",
            self.open_room,
        )
        join = WayIn(
            "join",
            "Join a room",
            "Type or scan the code that another device shows.",
            self._ask_for_code,
        )
        self._ways = {way.start: way for way in (solo, room, join)}
        self._form = SettingsForm(dom, settings, self._backing, self._form_changed)
        cores = platform.cpu_count()
        device = f"{platform.device_name()}, {cores} {'core' if cores == 1 else 'cores'}"
        self._going_on = GoingOn(
            dom,
            self._backing.saves,
            self._backing.read_file,
            lambda: self._form.settings,
            self._go_on,
            self.notify,
        )
        self._welcome = Welcome(
            dom,
            tuple(self._ways.values()),
            self._form,
            device,
            self._copy_settings_link,
            self._going_on.file,
        )
        self._offer = dom.element("div", self._going_on.root)
        turn = TurnForm(dom, "join", saved=self._form.turn.draw)
        self._join = JoinForm(dom, self._backing.scan_qr, self._enter, self._leave_run, turn)
        self._notices, self._announcer = Notices(dom), Announcer(dom)
        self._error = ErrorPanel(dom, self._try_again, self._leave_run)
        self._room = Room(dom, self._backing, self._copy, self._changed, self._correct_code)
        self._run = RunView(
            dom,
            device,
            self._room,
            ModelUse(dom, lambda: self._runs.session, self._file_name),
            self._copy_log,
            self._download_log,
            self._copy_run_link,
        )
        self._heading = dom.element("h1", "A run", class_="unseen", hidden=True)
        self._phase = dom.element("span")
        self._controls = {
            "pause": self._control("Pause", "primary", lambda: self._steer("pause")),
            "resume": self._control("Resume", "primary", lambda: self._steer("resume")),
            "go_on_alone": self._control(
                "Go on without them", "primary", lambda: self._steer("go_on_alone")
            ),
            "stop": self._control("Stop", "plain", lambda: self._steer("stop")),
            "leave": self._control("Leave", "plain", self._leave_room),
            "new": self._control("New run", "primary", self._leave_run),
        }
        self._sections = (
            self._announcer.root,
            self._heading,
            self._notices.root,
            self._error.root,
            self._offer,
            self._welcome.root,
            self._join.root,
            self._run.root,
        )

    def _try_again(self) -> None:
        again = self._again
        self._turn_away()
        again()

    def _control(self, text: str, kind: str, press: Callable[[], object]) -> Node:
        button = self._dom.element("button", text, type="button", class_=kind, hidden=True)
        button.on("click", lambda _event: press())
        return button
