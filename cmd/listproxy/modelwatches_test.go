package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/oracle"
)

// Watchers of the model (model_test.go) watch widgets, as informers do. A watch from memory must have the events that etcd has
// on one timeline. A restore of etcd begins another timeline. For example, etcd is at revision 130, and is restored from a
// backup at 120. Then both timelines have the same changes up to 120, and different ones from 121 on. For some time after the
// restore, listproxy may not know of it, so a watch may still have events of the previous timeline.

// eventPattern finds the type of an event, and its object's name, namespace and revision. A bookmark has no name.
var eventPattern = regexp.MustCompile(
	`^\{"type":"([A-Z]+)",.*?(?:"name":"([^"]*)","namespace":"([^"]*)",)?"resourceVersion":"(\d+)"`)

// fromState, in place of a revision, makes a watch begin with the state: a streaming list.
const fromState = 0

// runWatcher lists and watches widgets until ctx ends, as an informer does. Every second time it uses a streaming list.
func (m *model) runWatcher(ctx context.Context, user string) {
	for ctx.Err() == nil {
		pause(5 * time.Second)
		s := inmemory.Select{Namespace: oneOf("", "", "one"), Color: oneOf("", "", "red")}
		if oneIn(2) {
			m.watch(ctx, user, s, fromState)
			continue
		}
		q := listRequest{user: user, List: inmemory.List{Select: s}, semantics: oneOf("Any", "Consistent")}
		revision, _ := m.list(ctx, q, firstPage)
		for revision > 0 && ctx.Err() == nil {
			pause(3 * time.Second)
			revision = m.watch(ctx, user, s, revision)
		}
	}
}

// watch watches from a revision, or fromState, until the watch ends. It checks what arrives (see receive). It returns the
// revision from which the client can watch again, or 0 if the client must list.
func (m *model) watch(ctx context.Context, user string, s inmemory.Select, revision int64) int64 {
	w := &openWatch{m: m, user: user, Select: s, hasBookmarks: !oneIn(4), from: revision, revision: revision}
	timelines := m.plane.Timelines()
	w.head = m.plane.Revision()
	w.timelineUnknown = m.outage().Ongoing || m.isOldAnswerOnTheWay()

	// The request, and the header of its answer.
	resp, err := m.get(ctx, user, widgetsPath(s.Namespace), w.query())
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	w.fromMemory = isFromMemory(resp)
	if resp.StatusCode != http.StatusOK {
		if w.fromMemory {
			m.failf("%v: the watch is answered with %d", w, resp.StatusCode)
		}
		return 0
	}
	w.timeline = m.currentTimeline()
	if m.plane.Timelines() != timelines {
		w.head = 0 // a restore came between, so head was a revision of another timeline
	}
	m.count(w.kind())

	// The events.
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if w.fromMemory && !errors.Is(err, io.EOF) && ctx.Err() == nil {
				m.failf("%v: the watch ended within an event: %v", w, err)
			}
			return w.revision
		}
		if !w.receive(line) || m.t.Failed() {
			return 0
		}
	}
}

// openWatch is a watch that a client has open, with what has arrived so far.
type openWatch struct {
	m    *model
	user string
	inmemory.Select
	hasBookmarks bool  // the client asked for bookmarks
	fromMemory   bool  // the watch is from memory
	head         int64 // etcd's revision when the watch was requested
	timeline     int   // the timeline of the last event
	// timelineUnknown reports that listproxy could not know the current timeline when the watch was requested: no API server
	// answered, or an answer of an earlier timeline was still on its way. So the watch may be of any timeline that has its
	// events so far.
	timelineUnknown bool
	from            int64          // the revision at which the watch started; fromState until the initial events are complete
	revision        int64          // of the last event
	initial         []oracle.Event // the initial events so far; nil once they are complete
}

func (w *openWatch) String() string {
	return fmt.Sprintf("%s watches %+v from %d, from memory %t, now at %d", w.user, w.Select, w.from, w.fromMemory, w.revision)
}

// query returns the parameters of the watch.
func (w *openWatch) query() url.Values {
	q := url.Values{
		"watch":               {"true"},
		"allowWatchBookmarks": {strconv.FormatBool(w.hasBookmarks)},
		"timeoutSeconds":      {strconv.Itoa(5 + rand.IntN(600))},
	}
	if w.Color != "" {
		q.Set("labelSelector", "color="+w.Color)
	}
	if w.from != fromState {
		q.Set("resourceVersion", strconv.FormatInt(w.from, 10))
	} else {
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
	}
	return q
}

// kind returns the name of the watch in the counts of the model.
func (w *openWatch) kind() string {
	kind := "watch"
	if w.from == fromState {
		kind = "streaming list"
	}
	if !w.fromMemory {
		return "forwarded " + kind
	}
	return kind
}

// receive checks one line of the watch. It returns false if the watch cannot go on.
func (w *openWatch) receive(line string) bool {
	if !eventPattern.MatchString(line) { // an error, such as 410
		if w.fromMemory {
			w.m.failf("%v: got a line that is no event: %s", w, line)
		}
		return false
	}
	e := eventOf(line)
	revision := signed(e.Revision)
	if w.fromMemory {
		w.m.checkForms(w.String(), formsOf(line))
		if !w.m.plane.AllowedSince(w.user, time.Now().Add(-modelWatchRevocation)) {
			w.m.failf("%v: an event although the right was revoked more than %v ago", w, modelWatchRevocation)
		}
	}
	isBookmark := e.Type == watch.Bookmark
	if isBookmark && line != inmemory.Bookmark(inmemory.Widgets, revision, e.EndsInitial) {
		w.m.failf("%v: got the bookmark %s, want %s", w, line, inmemory.Bookmark(inmemory.Widgets, revision, e.EndsInitial))
	}
	if w.from == fromState {
		return w.receiveInitial(e, line)
	}
	if !w.checkEvents([]oracle.Event{e}, line) {
		return false
	}
	if w.fromMemory && !isBookmark {
		w.m.count("events")
	}
	w.revision = revision
	return true
}

// receiveInitial is receive for an event of the initial state. The bookmark at the end of the state checks all of them. Without
// bookmarks, nothing marks the end, and no event is checked.
func (w *openWatch) receiveInitial(e oracle.Event, line string) bool {
	if e.Type == watch.Bookmark {
		w.initial = append(w.initial, e)
		if !w.checkEvents(w.initial, line) {
			return false
		}
		w.initial = nil
		w.revision = signed(e.Revision)
		w.from = w.revision
		return true
	}
	if w.hasBookmarks {
		w.initial = append(w.initial, e)
	}
	return true
}

// checkEvents fails the test unless a timeline has these events: those that have arrived since w.revision, or all initial
// events. line is the last of them. checkEvents returns false if the watch cannot go on.
func (w *openWatch) checkEvents(events []oracle.Event, line string) bool {
	last := events[len(events)-1]
	possible := w.possibleTimelines(signed(last.Revision))
	var fitting []int
	for _, timeline := range possible {
		if w.judge(timeline, events) == nil {
			fitting = append(fitting, timeline)
		}
	}
	if len(fitting) <= 1 {
		w.timelineUnknown = false // no other timeline has the events so far
	}
	if len(fitting) > 0 {
		w.timeline = fitting[0]
		return true
	}
	w.timeline = possible[0]
	if w.mayCross(last) {
		w.m.count("crossed")
		return false
	}
	w.m.failf("%v: got %s: %v", w, line, w.judge(w.timeline, events))
	return false
}

// eventOf parses a line of a watch. It drops the form of the object, which [model.checkForms] checks.
func eventOf(line string) oracle.Event {
	match := eventPattern.FindStringSubmatch(line)
	revision, _ := strconv.ParseUint(match[4], 10, 64)
	return oracle.Event{
		Type:        watch.EventType(match[1]),
		Key:         match[3] + "/" + match[2],
		Revision:    revision,
		EndsInitial: strings.Contains(line, "initial-events-end"),
		Object:      formPattern.ReplaceAll([]byte(line), []byte(`"spec":{"definition":0,"release":""`)),
	}
}

// judge returns an error unless a timeline has the events that have arrived since w.revision, or all initial events.
func (w *openWatch) judge(timeline int, events []oracle.Event) error {
	last := events[len(events)-1].Revision
	want := w.expectedChanges(timeline, last)
	if w.from == fromState {
		want = w.expectedState(timeline, last)
	}
	const mayLackLast = true // the watch goes on, so further events may come
	return want.Judge(events, mayLackLast)
}

// expectedState returns what a streaming list must have if its bookmark is at a revision of a timeline: all objects of that
// time.
func (w *openWatch) expectedState(timeline int, revision uint64) oracle.Watch {
	want := oracle.Watch{
		Begins: oracle.FromState, Bookmarks: w.hasBookmarks, EndsInitial: true, MinRevision: unsigned(w.head),
		MaxRevision: revision, From: revision, State: map[string][]byte{},
	}
	for _, o := range w.m.plane.List(timeline, inmemory.Widgets, signed(revision), w.Select) {
		added := inmemory.Event{Type: "ADDED", Object: o, Revision: o.Revision}
		e := eventOf(added.Write(inmemory.Widgets, inmemory.Form{}))
		want.State[e.Key] = e.Object
	}
	return want
}

// expectedChanges returns what a watch must have after w.revision, up to a later revision of a timeline.
func (w *openWatch) expectedChanges(timeline int, upTo uint64) oracle.Watch {
	want := oracle.Watch{
		Begins: oracle.FromRevision, Bookmarks: w.hasBookmarks, Revision: unsigned(w.revision), From: unsigned(w.revision),
	}
	for _, e := range w.m.plane.Events(timeline, inmemory.Widgets, w.revision, signed(upTo), w.Select) {
		want.Events = append(want.Events, eventOf(e.Write(inmemory.Widgets, inmemory.Form{})))
	}
	return want
}

// possibleTimelines returns the timelines that the next event, at a revision, may belong to, the likeliest first. For example,
// etcd was restored from 130 to 120. The next event of a watch that is at 118 may be of both timelines: the client has seen
// nothing yet in which they differ. A watch that is at 125 of the previous timeline can only go on with that timeline.
//
// Only the current timeline is possible for an initial event, for a revision that the previous timeline has not reached, and
// once listproxy must know of the restore.
func (w *openWatch) possibleTimelines(revision int64) []int {
	plane := w.m.plane
	current := w.m.currentTimeline()
	previous := current - 1
	// agrees reports whether a timeline is the same as the current one up to the last event.
	agrees := func(timeline int) bool {
		return w.timelineUnknown || plane.SameUpTo(inmemory.Widgets, timeline, current, w.revision)
	}
	if !agrees(w.timeline) { // the watch has an event that the current timeline lacks
		return []int{w.timeline}
	}
	isInitial := w.from == fromState
	if isInitial || previous < 0 || revision > plane.Head(previous) {
		return []int{current}
	}
	restoredAt := w.m.lastRestore()
	mustKnowRestore := !restoredAt.IsZero() && time.Since(restoredAt) >= modelMaxAge
	if mustKnowRestore || !agrees(previous) {
		return []int{current}
	}
	return []int{current, previous}
}

// mayCross reports whether a watch of an earlier timeline may go on with the event e of the current one. kube-apiserver would
// send e, too, to a new watch from w.revision. Two things must be true:
//
//   - The current timeline has e. Its type may differ: for this client an object may be ADDED that is MODIFIED in the timeline.
//   - The client has the right objects after all changes of the current timeline that follow w.revision.
//
// After e, the client leaves the watch.
func (w *openWatch) mayCross(e oracle.Event) bool {
	plane := w.m.plane
	current := w.m.currentTimeline()
	revision := signed(e.Revision)
	if w.from == fromState || !w.fromMemory || w.timeline == current {
		return false
	}
	if !plane.Converges(inmemory.Widgets, w.timeline, current, w.revision, w.Select) {
		return false
	}
	if e.Type == watch.Bookmark {
		return revision <= plane.Head(current)
	}
	changes := plane.Events(current, inmemory.Widgets, revision-1, revision, inmemory.Select{Namespace: w.Namespace})
	return slices.ContainsFunc(changes, func(change inmemory.Event) bool {
		return change.Object.Namespace+"/"+change.Object.Name == e.Key
	})
}
