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

// Watchers of the model (model_test.go) watch widgets, as informers do. A watch from memory must have the events that etcd has on one
// timeline. A restore of etcd begins another timeline: the revisions after the restored one are given anew, to other changes. For
// some time after a restore, listproxy may not know of it, so a watch may still be of the previous timeline.

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

// watch watches from a revision, or fromState, until the watch ends. It checks each event of a watch from memory. It returns the
// revision from which the client can watch again, or 0 if the client must list.
func (m *model) watch(ctx context.Context, user string, s inmemory.Select, revision int64) int64 {
	f := &follower{m: m, user: user, Select: s, hasBookmarks: !oneIn(4), from: revision, revision: revision}
	timelines := m.plane.Timelines()
	f.head = m.plane.Revision()
	f.isTimelineOpen = m.outage().Ongoing || m.isOldAnswerOnTheWay()
	resp, err := m.get(ctx, user, widgetsPath(s.Namespace), f.query())
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	f.fromMemory = isFromMemory(resp)
	if resp.StatusCode != http.StatusOK {
		if f.fromMemory {
			m.failf("%v: the watch is answered with %d", f, resp.StatusCode)
		}
		return 0
	}
	f.timeline = m.currentTimeline()
	if m.plane.Timelines() != timelines {
		f.head = 0 // a restore came between, so head was a revision of another timeline
	}
	m.count(f.kind())
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if f.fromMemory && !errors.Is(err, io.EOF) && ctx.Err() == nil {
				m.failf("%v: the watch ended within an event: %v", f, err)
			}
			return f.revision
		}
		if !f.receive(line) || m.t.Failed() {
			return 0
		}
	}
}

// follower is a client in one watch.
type follower struct {
	m    *model
	user string
	inmemory.Select
	hasBookmarks bool  // the client asked for bookmarks
	fromMemory   bool  // the watch is from memory
	head         int64 // etcd's revision when the watch was requested
	timeline     int   // the timeline of the last event
	// isTimelineOpen reports that the watch can be of any timeline that has its events so far. When the watch was requested,
	// listproxy could not know the current timeline: no API server answered, or an answer of an earlier timeline was still on its way.
	isTimelineOpen bool
	from           int64          // the revision at which the watch started; fromState until the initial events are complete
	revision       int64          // of the last event
	initial        []oracle.Event // the initial events so far; nil once they are complete
}

func (f *follower) String() string {
	return fmt.Sprintf("%s watches %+v from %d, from memory %t, now at %d", f.user, f.Select, f.from, f.fromMemory, f.revision)
}

// query returns the parameters of the watch.
func (f *follower) query() url.Values {
	q := url.Values{
		"watch":               {"true"},
		"allowWatchBookmarks": {strconv.FormatBool(f.hasBookmarks)},
		"timeoutSeconds":      {strconv.Itoa(5 + rand.IntN(600))},
	}
	if f.Color != "" {
		q.Set("labelSelector", "color="+f.Color)
	}
	if f.from != fromState {
		q.Set("resourceVersion", strconv.FormatInt(f.from, 10))
	} else {
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
	}
	return q
}

// kind returns the name of the watch in the counts of the model.
func (f *follower) kind() string {
	kind := "watch"
	if f.from == fromState {
		kind = "streaming list"
	}
	if !f.fromMemory {
		return "forwarded " + kind
	}
	return kind
}

// receive checks one line of the watch. It returns false if the watch cannot go on.
func (f *follower) receive(line string) bool {
	if !eventPattern.MatchString(line) { // an error, such as 410
		if f.fromMemory {
			f.m.failf("%v: got a line that is no event: %s", f, line)
		}
		return false
	}
	e := eventOf(line)
	revision := int64(e.Revision) // #nosec G115 -- etcd's revisions fit
	if f.fromMemory {
		f.m.checkForms(f.String(), formsOf(line))
		if !f.m.plane.AllowedSince(f.user, time.Now().Add(-modelWatchRevocation)) {
			f.m.failf("%v: an event although the right was revoked more than %v ago", f, modelWatchRevocation)
		}
	}
	isBookmark := e.Type == watch.Bookmark
	if isBookmark && line != inmemory.Bookmark(inmemory.Widgets, revision, e.EndsInitial) {
		f.m.failf("%v: got the bookmark %s, want %s", f, line, inmemory.Bookmark(inmemory.Widgets, revision, e.EndsInitial))
	}
	if f.from == fromState {
		return f.receiveInitial(e, line)
	}
	if !f.checkEvents([]oracle.Event{e}, line) {
		return false
	}
	if f.fromMemory && !isBookmark {
		f.m.count("events")
	}
	f.revision = revision
	return true
}

// receiveInitial is receive for an event of the initial state. The bookmark at the end of the state checks all of them. Without
// bookmarks, nothing marks the end, and no event is checked.
func (f *follower) receiveInitial(e oracle.Event, line string) bool {
	if e.Type == watch.Bookmark {
		if !f.checkEvents(append(f.initial, e), line) {
			return false
		}
		f.initial = nil
		f.revision = int64(e.Revision) // #nosec G115 -- etcd's revisions fit
		f.from = f.revision
		return true
	}
	if f.hasBookmarks {
		f.initial = append(f.initial, e)
	}
	return true
}

// checkEvents fails the test unless a timeline has these events: those that have arrived since f.revision, or all initial events. line
// is the last of them. checkEvents returns false if the watch cannot go on.
func (f *follower) checkEvents(events []oracle.Event, line string) bool {
	last := events[len(events)-1]
	possible := f.possibleTimelines(int64(last.Revision)) // #nosec G115 -- etcd's revisions fit
	var fitting []int
	for _, timeline := range possible {
		if f.judge(timeline, events) == nil {
			fitting = append(fitting, timeline)
		}
	}
	if len(fitting) < 2 { // from now on, it is certain which timeline the watch is of
		f.isTimelineOpen = false
	}
	if len(fitting) > 0 {
		f.timeline = fitting[0]
		return true
	}
	f.timeline = possible[0]
	if f.mayCross(last) {
		f.m.count("crossed")
		return false
	}
	f.m.failf("%v: got %s: %v", f, line, f.judge(f.timeline, events))
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

// judge returns an error unless a timeline has the events that have arrived since f.revision, or all initial events.
func (f *follower) judge(timeline int, events []oracle.Event) error {
	last := events[len(events)-1].Revision
	upTo := int64(last) // #nosec G115 -- etcd's revisions fit
	const ended = true
	if f.from == fromState {
		want := oracle.Watch{
			Begins: oracle.FromState, Bookmarks: f.hasBookmarks, EndsInitial: true, MinRevision: unsigned(f.head),
			MaxRevision: last, From: last, State: map[string][]byte{},
		}
		for _, o := range f.m.plane.List(timeline, inmemory.Widgets, upTo, f.Select) {
			added := inmemory.Event{Type: "ADDED", Object: o, Revision: o.Revision}
			e := eventOf(added.Write(inmemory.Widgets, inmemory.Form{}))
			want.State[e.Key] = e.Object
		}
		return want.Judge(events, ended)
	}
	want := oracle.Watch{
		Begins: oracle.FromRevision, Bookmarks: f.hasBookmarks, Revision: unsigned(f.revision), From: unsigned(f.revision),
	}
	for _, e := range f.m.plane.Events(timeline, inmemory.Widgets, f.revision, upTo, f.Select) {
		want.Events = append(want.Events, eventOf(e.Write(inmemory.Widgets, inmemory.Form{})))
	}
	return want.Judge(events, ended)
}

// possibleTimelines returns the timelines that an event at a revision may belong to, the likeliest first:
//
//   - The timeline of the watch alone, if a restore has ended it before the last event.
//   - The current one alone, if the events are initial, if the previous one cannot have the last event, or if listproxy must know
//     of the restore by now.
//   - The current and the previous one otherwise.
func (f *follower) possibleTimelines(revision int64) []int {
	plane := f.m.plane
	current := f.m.currentTimeline()
	previous := current - 1
	// agrees reports whether a timeline is the same as the current one up to the last event.
	agrees := func(timeline int) bool {
		return f.isTimelineOpen || plane.SameUpTo(inmemory.Widgets, timeline, current, f.revision)
	}
	if !agrees(f.timeline) { // a restore has ended the watch's timeline before f.revision
		return []int{f.timeline}
	}
	isInitial := f.from == fromState
	if isInitial || previous < 0 || revision > plane.Head(previous) {
		return []int{current}
	}
	restoredAt := f.m.lastRestore()
	mustKnowRestore := !restoredAt.IsZero() && time.Since(restoredAt) >= modelMaxAge
	if mustKnowRestore || !agrees(previous) {
		return []int{current}
	}
	return []int{current, previous}
}

// mayCross reports whether a watch of an earlier timeline may go on with the event e of the current one, as a new watch from
// f.revision would. Two things must be true: the current timeline has e, and the changes after f.revision leave the client with the
// right objects. The type of e may differ, since an object that is new to this client may not be new in the timeline. The client
// leaves the watch after e.
func (f *follower) mayCross(e oracle.Event) bool {
	plane := f.m.plane
	current := f.m.currentTimeline()
	revision := int64(e.Revision) // #nosec G115 -- etcd's revisions fit
	if f.from == fromState || !f.fromMemory || f.timeline == current {
		return false
	}
	if !plane.Converges(inmemory.Widgets, f.timeline, current, f.revision, f.Select) {
		return false
	}
	if e.Type == watch.Bookmark {
		return revision <= plane.Head(current)
	}
	changes := plane.Events(current, inmemory.Widgets, revision-1, revision, inmemory.Select{Namespace: f.Namespace})
	return slices.ContainsFunc(changes, func(change inmemory.Event) bool {
		return change.Object.Namespace+"/"+change.Object.Name == e.Key
	})
}
