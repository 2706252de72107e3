package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/oracle"
	"github.com/listproxy/listproxy/test/proxytest"
)

const (
	// modelBound is the staleness bound, with what an answer takes.
	modelBound = 90*time.Second + 5*time.Second
	// modelSkew is for how long a definition counts after it has changed: an API server learns of that after
	// some seconds, and so does listproxy.
	modelSkew = 30 * time.Second
	// modelVerified is how long it takes, at most, until what other API servers write is what is kept.
	modelVerified = 12 * time.Minute
	// modelReview is for how long a right counts after it was taken away, and modelReviewed for how long a
	// watch goes on.
	modelReview   = 10*time.Second + 2*time.Second
	modelReviewed = 2 * time.Minute
	// modelUnheard is for how long an upstream can be reached again, at most, before listproxy has asked it.
	modelUnheard = 15 * time.Second
)

// model is listproxy as main assembles it, between clients and a control plane in memory.
type model struct {
	t      *testing.T
	plane  *inmemory.ControlPlane
	front  *inmemory.Listener
	client *http.Client
	// isOut reports whether no API server has answered listproxy since an outage began.
	isOut func() bool

	mu       sync.Mutex
	happened []string
	// restored is when the last restored etcd could be reached; zero until it can.
	restored time.Time
	seen     map[string]int
	releases int // so far; only steps use it
}

func (m *model) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.happened = append(m.happened, fmt.Sprintf("%8.1fs ", time.Since(modelBegin).Seconds())+fmt.Sprintf(format, args...))
}

func (m *model) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[what]++
}

func (m *model) counted(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[what]
}

// wrong ends the test with what has happened before.
func (m *model) wrong(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.t.Failed() {
		return
	}
	last := m.happened[max(0, len(m.happened)-40):]
	m.t.Errorf("%8.1fs "+format+"\nbefore:\n  %s", append([]any{time.Since(modelBegin).Seconds()}, append(args, strings.Join(last, "\n  "))...)...)
}

// modelBegin is when a bubble begins.
var modelBegin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// newModel starts listproxy before a control plane with so many servers. Listproxy's requests to these go
// through wrap.
func newModel(t *testing.T, servers int, wrap func(http.RoundTripper) http.RoundTripper) *model {
	m := &model{t: t, plane: inmemory.New(t), front: inmemory.NewListener(), seen: map[string]int{}}
	for range servers {
		m.plane.AddServer("v1.36.0").Start("v1.36.0")
	}
	m.plane.Allow("alice", true)
	m.plane.Allow("carol", true)
	o, err := parse("--watches", "--consistent-lists=always", "--self-check-interval=0", "--idle-timeout=0")
	expect.NoError(t, err)
	discard := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(context.Background())
	instruments, err := newInstruments(ctx, discard)
	expect.NoError(t, err)
	config := m.plane.Config()
	config.Wrap(wrap)
	api, err := newAPIServer(config, false, discard)
	expect.NoError(t, err)
	m.isOut = func() bool { return api.health.Outage().Lasts }
	a, err := o.assemble(api, &ports{}, instruments, discard)
	expect.NoError(t, err)
	var parts sync.WaitGroup
	parts.Go(func() { api.transports.Run(ctx, discard) })
	parts.Go(func() { api.health.Run(ctx) })
	parts.Go(func() { a.cluster.Run(ctx) })
	parts.Go(func() { _ = a.watchRBAC(ctx) })
	server := serve.New(a.handler, nil, discard)
	parts.Go(func() { _ = server.Serve(m.front) })
	transport := &http.Transport{
		DialContext:        m.front.Dial,
		DisableCompression: true, MaxIdleConnsPerHost: 100,
	}
	m.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		_ = server.Close()
		a.close()
		instruments.close(discard)
		for _, s := range m.plane.Servers() {
			s.Stop()
		}
		parts.Wait()
		time.Sleep(time.Hour) // what has been given up ends
	})
	return m
}

// get sends a request as a user.
func (m *model) get(ctx context.Context, user, path string, q url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://listproxy"+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+user)
	r.Header.Set("Accept", "application/json")
	return m.client.Do(r)
}

// fromMemory reports whether an answer is from memory.
func fromMemory(r *http.Response) bool {
	return strings.Contains(r.Header.Get("Cache-Status"), "; hit")
}

var (
	modelForm     = regexp.MustCompile(`"spec":\{"definition":(\d+),"release":"([^"]*)"`)
	modelEnvelope = regexp.MustCompile(`"kind":"WidgetList","metadata":\{"continue":"([^"]*)",(?:"remainingItemCount":\d+,)?"resourceVersion":"(\d+)"\}\}\n$`)
	modelEvent    = regexp.MustCompile(`^\{"type":"([A-Z]+)",.*?(?:"name":"([^"]*)","namespace":"([^"]*)",)?"resourceVersion":"(\d+)"`)
)

// forms are those of the items of an answer.
type forms []inmemory.Form

func formsOf(body string) (all forms) {
	for _, found := range modelForm.FindAllStringSubmatch(body, -1) {
		generation, _ := strconv.Atoi(found[1])
		all = append(all, inmemory.Form{Definition: generation, Release: found[2]})
	}
	return all
}

// at is the form of an item, if there is one.
func (f forms) at(i int) (form inmemory.Form) {
	if i < len(f) {
		form = f[i]
	}
	return form
}

// asked is a list that was asked for.
type asked struct {
	inmemory.List
	semantics string // Any, NotOlderThan, Exact, Consistent or Continue
	shard     bool   // only one shard, but these API servers do not know shards and give all
	revision  int64
	user      string
	at        time.Time
	head      int64
	timelines int
	out       bool // no API server answered then
}

func (m *model) path(namespace string) string {
	if namespace == "" {
		return inmemory.Widgets.Path
	}
	return "/apis/example.com/v1/namespaces/" + namespace + "/widgets"
}

// query is the request for a list.
func (a asked) query(token string) url.Values {
	q := url.Values{}
	if a.Color != "" {
		q.Set("labelSelector", "color="+a.Color)
	}
	if a.Limit > 0 {
		q.Set("limit", strconv.Itoa(a.Limit))
	}
	if a.shard {
		q.Set("shardSelector", "shardRange(object.metadata.namespace, '0x5000000000000000', '0x6000000000000000')") // has the namespace "two"
	}
	switch a.semantics {
	case "Any":
		q.Set("resourceVersion", "0")
	case "NotOlderThan", "Exact":
		q.Set("resourceVersion", strconv.FormatInt(a.revision, 10))
		q.Set("resourceVersionMatch", a.semantics)
	case "Continue":
		q.Set("continue", token)
	}
	return q
}

// ask sends a list, and holds the answer against the truth if it is from memory. It returns the revision and
// the token of the answer; 0 if there was none.
func (m *model) ask(ctx context.Context, a asked, token string) (revision int64, next string) {
	a.at, a.head, a.timelines, a.out = time.Now(), m.plane.Revision(), m.plane.Timelines(), m.isOut()
	r, err := m.get(ctx, a.user, m.path(a.Namespace), a.query(token))
	if err != nil {
		m.count("no answer")
		return 0, ""
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	envelope := modelEnvelope.FindStringSubmatch(string(body))
	memory := fromMemory(r)
	switch {
	case memory && (err != nil || envelope == nil || r.StatusCode != http.StatusOK):
		m.wrong("%+v: from memory: %d, %v: %s", a, r.StatusCode, err, body)
		return 0, ""
	case envelope == nil:
		m.count("no list")
		return 0, ""
	}
	revision, _ = strconv.ParseInt(envelope[2], 10, 64)
	if memory {
		m.count(a.semantics)
		if a.semantics == "Any" { // the watch cache pages nothing there
			a.Limit = 0
		}
		m.judge(a, revision, string(body))
	} else {
		m.count("forwarded " + a.semantics)
		_, why, _ := strings.Cut(r.Header.Get("Cache-Status"), "detail=")
		m.count("why: " + why)
	}
	return revision, envelope[1]
}

// judge holds a list from memory against the truth.
func (m *model) judge(a asked, revision int64, body string) {
	now := time.Now()
	written, timeline := formsOf(body), -1
	for p := m.plane.Timelines() - 1; p >= 0 && timeline < 0; p-- {
		if m.plane.WriteList(p, inmemory.Widgets, revision, a.List, written.at) == body {
			timeline = p
		}
	}
	m.mu.Lock()
	restored := m.restored
	m.mu.Unlock()
	current := timeline == m.plane.Timelines()-1
	switch {
	case timeline < 0:
		m.wrong("%+v: there never was such a list at revision %d: %s\nright: %s", a, revision, body,
			m.plane.WriteList(m.plane.Timelines()-1, inmemory.Widgets, revision, a.List, written.at))
	case !current && restored.IsZero(): // nobody could be asked yet
	case !current && a.semantics == "Any" && now.Sub(restored) < modelBound:
	case !current && a.at.Before(restored):
	case !current && a.out && now.Sub(restored) < modelUnheard:
	case !current:
		m.wrong("%+v: a list of the timeline before etcd was restored (%v ago), at revision %d: %s", a, now.Sub(restored), revision, body)
	default:
		if err := a.demand(now, m.plane.Timelines()).Judge(unsigned(revision), func(at time.Time) uint64 { return unsigned(m.plane.HeadAt(at)) }); err != nil {
			m.wrong("%+v: %v", a, err)
		}
	}
	m.judgeForms(fmt.Sprintf("%+v", a), written)
	if !m.plane.AllowedSince(a.user, now.Add(-modelReview)) {
		m.wrong("%+v: answered though it was forbidden %v ago", a, modelReview)
	}
}

// demand is what the answer must be, in the timeline of now.
func (a asked) demand(now time.Time, timelines int) (must oracle.List) {
	switch a.semantics {
	case "Any":
		must.Holds = now.Add(-modelBound)
	case "Consistent":
		if a.timelines == timelines {
			must.Revision = unsigned(a.head)
		}
	default:
		must.Revision, must.Exactly = unsigned(a.revision), a.semantics != "NotOlderThan"
	}
	return must
}

// unsigned is a revision as oracles have it.
func unsigned(revision int64) uint64 { return uint64(revision) } // #nosec G115 -- none is below 0

func (m *model) judgeForms(what string, written forms) {
	now := time.Now()
	for _, f := range written {
		if !m.plane.MayWrite(f, now.Add(-modelSkew), now.Add(-modelVerified)) {
			m.wrong("%s: no server writes %+v any more", what, f)
			return
		}
	}
}

// lister asks for lists until ctx ends.
func (m *model) lister(ctx context.Context, user string) {
	var last int64
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Millisecond)
		a := asked{user: user, List: inmemory.List{Select: inmemory.Select{
			Namespace: []string{"", "", "one", "two"}[rand.IntN(4)], Color: []string{"", "", "red"}[rand.IntN(3)],
		}}}
		a.semantics = []string{"Any", "Any", "NotOlderThan", "Exact", "Consistent", "Consistent"}[rand.IntN(6)]
		if rand.IntN(3) == 0 {
			a.Limit = 1 + rand.IntN(4)
		}
		a.shard = rand.IntN(20) == 0
		if a.revision = last; last == 0 && (a.semantics == "NotOlderThan" || a.semantics == "Exact") {
			continue
		}
		at, token := m.ask(ctx, a, "")
		if at > 0 {
			last = at
		}
		for token != "" && ctx.Err() == nil {
			start := inmemory.Start(token)
			if a.Namespace != "" {
				start = a.Namespace + "/" + start
			}
			time.Sleep(time.Duration(rand.IntN(30_000)) * time.Millisecond)
			page := a
			page.semantics, page.revision, page.Start = "Continue", at, start
			_, token = m.ask(ctx, page, token)
		}
	}
}

// watcher lists and watches until ctx ends, as an informer does.
func (m *model) watcher(ctx context.Context, user string) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Millisecond)
		s := inmemory.Select{Namespace: []string{"", "", "one"}[rand.IntN(3)], Color: []string{"", "", "red"}[rand.IntN(3)]}
		if rand.IntN(2) == 0 {
			m.follow(ctx, user, s, 0)
			continue
		}
		semantics := []string{"Any", "Consistent"}[rand.IntN(2)]
		at, _ := m.ask(ctx, asked{user: user, List: inmemory.List{Select: s}, semantics: semantics}, "")
		for at > 0 && ctx.Err() == nil {
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
			at = m.follow(ctx, user, s, at)
		}
	}
}

// follow watches from a revision on, or with the state at the beginning (0), and holds each event against
// the truth. It returns where to go on; 0 if that is not known.
func (m *model) follow(ctx context.Context, user string, s inmemory.Select, after int64) int64 {
	bookmarks := rand.IntN(4) > 0
	q := url.Values{"watch": {"true"}, "allowWatchBookmarks": {strconv.FormatBool(bookmarks)}, "timeoutSeconds": {strconv.Itoa(5 + rand.IntN(600))}}
	if s.Color != "" {
		q.Set("labelSelector", "color="+s.Color)
	}
	if after > 0 {
		q.Set("resourceVersion", strconv.FormatInt(after, 10))
	} else {
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
	}
	head, timelines, out := m.plane.Revision(), m.plane.Timelines(), m.isOut()
	r, err := m.get(ctx, user, m.path(s.Namespace), q)
	if err != nil {
		return 0
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		if fromMemory(r) {
			m.wrong("a watch from memory: %d", r.StatusCode)
		}
		return 0
	}
	memory := fromMemory(r)
	w := &follower{
		model: m, user: user, Select: s, memory: memory, bookmarks: bookmarks,
		timeline: m.plane.Timelines() - 1, out: out, head: head, first: after, at: after,
	}
	if timelines != m.plane.Timelines() {
		w.head = 0
	}
	what := "watch"
	if after == 0 {
		what = "streaming list"
	}
	if !memory {
		what = "forwarded " + what
	}
	m.count(what)
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if memory && !errors.Is(err, io.EOF) && ctx.Err() == nil {
				m.wrong("%+v: a watch from memory did not end in order: %v", w, err)
			}
			return w.at
		}
		if !w.take(line) {
			return 0
		}
		if m.t.Failed() {
			return 0
		}
	}
}

// follower is a client that watches.
type follower struct {
	*model
	user string
	inmemory.Select
	memory bool
	// bookmarks: it asked for them.
	bookmarks bool
	timeline  int
	// out: no API server answered when it was asked for, and which timeline it follows is not known yet.
	out   bool
	head  int64 // when it was asked for
	first int64
	at    int64
	// initial are the events of the beginning, until its bookmark.
	initial []oracle.Event
}

func (w *follower) String() string {
	return fmt.Sprintf("%s watches %+v from %d, memory %t, now at %d", w.user, w.Select, w.first, w.memory, w.at)
}

// take takes one line; it returns false if the watch cannot go on.
func (w *follower) take(line string) bool {
	if !modelEvent.MatchString(line) {
		if w.memory {
			w.wrong("%v: told of %s", w, line)
		}
		return false // a 410
	}
	e := eventOf(line)
	revision := int64(e.Revision) // #nosec G115 -- it was none
	if w.memory {
		w.judgeForms(w.String(), formsOf(line))
		if !w.plane.AllowedSince(w.user, time.Now().Add(-modelReviewed)) {
			w.wrong("%v: told though it was forbidden %v ago", w, modelReviewed)
		}
	}
	switch {
	case e.Type == watch.Bookmark && line != inmemory.Bookmark(inmemory.Widgets, revision, e.EndsInitial):
		w.wrong("%v: a bookmark %s", w, line)
	case w.first == 0 && !w.bookmarks && e.Type != watch.Bookmark: // where its beginning ends cannot be seen
		return true
	case w.first == 0 && !e.EndsInitial && e.Type != watch.Bookmark:
		w.initial = append(w.initial, e)
		return true
	}
	told, timelines := slices.Concat(w.initial, []oracle.Event{e}), w.timelines(revision)
	fitting := slices.DeleteFunc(slices.Clone(timelines), func(timeline int) bool { return w.judge(timeline, told) != nil })
	w.timeline = append(fitting, timelines...)[0]
	w.out = w.out && len(fitting) > 1
	if err := w.judge(w.timeline, told); err != nil {
		if w.mayCross(e) {
			w.count("crossed")
			return false
		}
		w.wrong("%v: told %s: %v", w, line, err)
		return false
	}
	if w.first == 0 {
		w.first, w.initial = revision, nil
	} else if w.memory && e.Type != watch.Bookmark {
		w.count("events")
	}
	w.at = revision
	return true
}

// eventOf reads a line of a watch. Which server wrote the object is judged apart.
func eventOf(line string) oracle.Event {
	found := modelEvent.FindStringSubmatch(line)
	revision, _ := strconv.ParseUint(found[4], 10, 64)
	return oracle.Event{
		Type: watch.EventType(found[1]), Key: found[3] + "/" + found[2], Revision: revision, EndsInitial: strings.Contains(line, "initial-events-end"),
		Object: modelForm.ReplaceAll([]byte(line), []byte(`"spec":{"definition":0,"release":""`)),
	}
}

// judge returns what is wrong, in a timeline, with what is told next, or at the beginning.
func (w *follower) judge(timeline int, told []oracle.Event) error {
	last := told[len(told)-1].Revision
	must := oracle.Watch{Begins: oracle.FromRevision, Bookmarks: w.bookmarks, Revision: unsigned(w.at), From: unsigned(w.at)}
	if w.first == 0 {
		must = oracle.Watch{
			Begins: oracle.FromState, Bookmarks: w.bookmarks, EndsInitial: true, MinRevision: unsigned(w.head), MaxRevision: last, From: last, State: map[string][]byte{},
		}
		for _, o := range w.plane.List(timeline, inmemory.Widgets, int64(last), w.Select) { // #nosec G115 -- it was none
			e := eventOf(inmemory.Event{Type: "ADDED", Object: o, Revision: o.Revision}.Write(inmemory.Widgets, inmemory.Form{}))
			must.State[e.Key] = e.Object
		}
	} else {
		for _, ev := range w.plane.Events(timeline, inmemory.Widgets, w.at, int64(last), w.Select) { // #nosec G115 -- it was none
			must.Events = append(must.Events, eventOf(ev.Write(inmemory.Widgets, inmemory.Form{})))
		}
	}
	return must.Judge(told, true)
}

// timelines are those in which a client may be told of a revision, the likeliest first. If the timeline of now has
// everything that the client was told, it is that one. Until listproxy must know that etcd was restored, a
// watch whose beginning was told may also go on in the timeline before, up to its end; so may one that was asked for
// while nobody answered, from any revision of that timeline.
func (w *follower) timelines(revision int64) []int {
	now := w.plane.Timelines() - 1
	if !w.out && !w.plane.SameUpTo(inmemory.Widgets, w.timeline, now, w.at) {
		return []int{w.timeline}
	}
	w.mu.Lock()
	restored := w.restored
	w.mu.Unlock()
	if before := now - 1; w.first > 0 && before >= 0 && (restored.IsZero() || time.Since(restored) < modelBound) &&
		revision <= w.plane.Head(before) && (w.out || w.plane.SameUpTo(inmemory.Widgets, before, now, w.at)) {
		return []int{now, before}
	}
	return []int{now}
}

// mayCross reports whether a watch of an earlier timeline may tell of an event of the present one. A kube-apiserver
// would accept a new watch from the client's revision, too. So it may, if the event is one of the present timeline, and
// all changes from there on give the client the present objects. The event's type is not checked: an object that is new
// to this client may not be new in the timeline. The client leaves the watch after this event.
func (w *follower) mayCross(e oracle.Event) bool {
	now, revision := w.plane.Timelines()-1, int64(e.Revision) // #nosec G115 -- it was none
	if w.first == 0 || !w.memory || w.timeline == now || !w.plane.Leads(inmemory.Widgets, w.timeline, now, w.at, w.Select) {
		return false
	}
	if e.Type == watch.Bookmark {
		return revision <= w.plane.Head(now)
	}
	changes := w.plane.Events(now, inmemory.Widgets, revision-1, revision, inmemory.Select{Namespace: w.Namespace})
	return slices.ContainsFunc(changes, func(ev inmemory.Event) bool { return ev.Object.Namespace+"/"+ev.Object.Name == e.Key })
}

// writer writes until ctx ends, and rests now and then.
func (m *model) writer(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 + rand.IntN(20) {
			m.write()
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
		}
		if rand.IntN(3) == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Second)
		}
	}
}

// write writes or deletes one widget, if etcd has a server.
func (m *model) write() {
	if m.plane.Up() == 0 {
		return
	}
	o := inmemory.Object{
		Namespace: []string{"one", "two", "two-b"}[rand.IntN(3)], Name: strconv.Itoa(rand.IntN(6)), Color: []string{"", "red", "green"}[rand.IntN(3)],
	}
	if rand.IntN(4) == 0 {
		m.plane.Delete(inmemory.Widgets, o)
	} else {
		m.plane.Put(inmemory.Widgets, o)
	}
}

func pause(most time.Duration) { time.Sleep(rand.N(most)) }

// step makes something happen.
func (m *model) step() {
	servers := m.plane.Servers()
	s := servers[rand.IntN(len(servers))]
	switch n := rand.IntN(12); n {
	case 0, 1:
		release := "v1.36.0"
		if rand.IntN(2) == 0 {
			m.releases++
			release = fmt.Sprintf("v1.36.%d", m.releases)
		}
		m.note("a server ends, and comes as %s", release)
		s.Stop()
		pause(20 * time.Second)
		s.Start(release)
	case 2:
		m.note("a server stands still")
		s.Freeze()
		pause(3 * time.Minute)
		s.Heal()
	case 3:
		m.note("a server hangs")
		s.Hang()
		pause(time.Minute)
		s.Heal()
	case 4:
		status := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError}[rand.IntN(3)]
		m.note("a server answers %d", status)
		s.Refuse(status)
		pause(time.Minute)
		s.Heal()
	case 5:
		m.note("the definition changes")
		m.plane.Define()
	case 6:
		m.restore()
	case 7, 8:
		allowed := !m.plane.Allowed("carol")
		m.note("carol is allowed: %t", allowed)
		m.plane.Allow("carol", allowed)
		if !allowed {
			pause(30 * time.Second)
			m.plane.Allow("carol", true)
		}
	case 9:
		m.note("all servers are replaced, one after the other")
		m.releases++
		for _, s := range servers {
			s.Stop()
			pause(5 * time.Second)
			s.Start(fmt.Sprintf("v1.36.%d", m.releases))
			pause(time.Minute)
		}
	case 10:
		m.note("much is written, and asked for")
		var asking sync.WaitGroup
		for range 50 {
			m.write()
			asking.Go(func() { m.ask(m.t.Context(), asked{user: "alice", semantics: "Consistent"}, "") })
			pause(500 * time.Millisecond)
		}
		asking.Wait()
	}
	pause(4 * time.Minute)
}

// restore ends all servers, takes etcd back, and starts them.
func (m *model) restore() {
	servers := m.plane.Servers()
	for _, s := range servers {
		s.Stop()
	}
	head := m.plane.Revision()
	to := max(head-int64(rand.IntN(30)), 102)
	m.mu.Lock()
	m.restored = time.Time{}
	m.mu.Unlock()
	m.plane.Restore(to)
	pause(30 * time.Second)
	for _, s := range servers {
		s.Start("v1.36.0")
		if rand.IntN(2) == 0 { // until it has passed the revision of before
			for range rand.IntN(60) {
				m.write()
			}
		}
	}
	m.mu.Lock()
	m.restored = time.Now()
	m.mu.Unlock()
	m.note("etcd was restored from %d to %d, and is at %d", head, to, m.plane.Revision())
}

// slowly is the way to the API servers on which what listproxy itself asks of widgets takes its time: the
// request, the answer and each line of it. Until all is well, some answers are lost, and some cut off.
type slowly struct {
	http.RoundTripper
	well *atomic.Bool
}

// chance happens once in so many times, but never when all is well.
func (s slowly) chance(of int) bool { return !s.well.Load() && rand.IntN(of) == 0 }

// lag is how long something is on its way. Sometimes it stands still.
func (s slowly) lag() time.Duration {
	if s.chance(30) {
		return rand.N(3 * time.Second)
	}
	return rand.N(40 * time.Millisecond)
}

// WrappedRoundTripper is for client-go.
func (s slowly) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	user, ctx := r.Header.Get("Authorization"), r.Context()
	if !strings.HasSuffix(r.URL.Path, "/widgets") || user == "Bearer alice" || user == "Bearer carol" {
		return s.RoundTripper.RoundTrip(r)
	}
	if !clock.Sleep(ctx, s.lag()) {
		return nil, ctx.Err()
	}
	res, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if !clock.Sleep(ctx, s.lag()) || s.chance(40) {
		_ = res.Body.Close()
		return nil, cmp.Or(ctx.Err(), io.ErrUnexpectedEOF)
	}
	body, late := io.Pipe()
	from := res.Body
	go func() {
		defer func() { _ = from.Close() }()
		for in := bufio.NewReader(from); ; {
			line, err := in.ReadString('\n')
			if line != "" {
				clock.Sleep(ctx, s.lag())
				_, _ = io.WriteString(late, line) // or nobody reads it any more
			}
			if err == nil && s.chance(40) {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				_ = late.CloseWithError(err)
				return
			}
		}
	}()
	res.Body = body
	return res, nil
}

// TestModel runs listproxy, whole, between clients and a control plane in memory, while servers end, lag,
// hang, refuse and are replaced, answers are late, lost or cut off, etcd is restored, definitions and rights
// change. Each list and each event from memory is held against all that ever happened.
func TestModel(t *testing.T) {
	seen, worlds := map[string]int{}, 12
	if testing.Short() {
		worlds = 3
	}
	for range worlds {
		synctest.Test(t, func(t *testing.T) {
			var well atomic.Bool
			m := newModel(t, 1+rand.IntN(3), func(rt http.RoundTripper) http.RoundTripper { return slowly{rt, &well} })
			for range 20 {
				m.write()
			}
			ctx, stop := context.WithCancel(context.Background())
			var all sync.WaitGroup
			for _, user := range []string{"alice", "carol", "alice"} {
				all.Go(func() { m.lister(ctx, user) })
				all.Go(func() { m.watcher(ctx, user) })
			}
			all.Go(func() { m.writer(ctx) })
			time.Sleep(15 * time.Second) // what a definition was before listproxy began, it cannot know
			for range 25 {
				if !t.Failed() {
					m.step()
				}
			}
			well.Store(true)
			m.heal()
			stop()
			all.Wait()
			for what, n := range m.seen {
				seen[what] += n
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Log(seen)
	for _, what := range []string{"Any", "NotOlderThan", "Exact", "Consistent", "Continue", "streaming list", "watch", "events"} {
		if seen[what] == 0 && !t.Failed() {
			t.Errorf("nothing of this was from memory: %s", what)
		}
	}
}

// heal ends all that is wrong, and checks that memory answers again.
func (m *model) heal() {
	if m.t.Failed() {
		return
	}
	for _, s := range m.plane.Servers() {
		s.Heal()
	}
	time.Sleep(20 * time.Minute)
	for _, semantics := range []string{"Any", "Consistent"} {
		before := m.counted(semantics)
		m.ask(context.Background(), asked{user: "alice", semantics: semantics}, "")
		if m.counted(semantics) == before {
			m.wrong("twenty minutes after all was well again, lists (%s) are still forwarded", semantics)
		}
	}
}

// TestNoRedirectIsFollowed: listproxy's own credentials are for one server, and what is asked with them is
// there: it is asked nowhere else, not even at the same address.
func TestNoRedirectIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var redirected sync.Map // by path; each once, so that what waits for it goes on
		m := newModel(t, 1, func(rt http.RoundTripper) http.RoundTripper {
			return proxytest.Transport(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Authorization") == "Bearer alice" {
					return rt.RoundTrip(r)
				}
				if r.URL.Path == "/elsewhere" {
					t.Error("a redirect was followed")
				}
				if _, before := redirected.LoadOrStore(r.URL.Path, true); before {
					return rt.RoundTrip(r)
				}
				answer := proxytest.JSONResponse(r, http.StatusFound, "{}")
				answer.Header.Set("Location", "/elsewhere")
				return answer, nil
			})
		})
		time.Sleep(15 * time.Minute)
		m.ask(t.Context(), asked{user: "alice", semantics: "Any"}, "")
		time.Sleep(time.Minute)
		const rbac = "/apis/rbac.authorization.k8s.io/v1/"
		for _, path := range []string{
			inmemory.Widgets.Path, "/api/v1", "/readyz", "/version", "/apis/apiregistration.k8s.io/v1/apiservices",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
			"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions", rbac + "roles", rbac + "rolebindings",
		} {
			if _, asked := redirected.Load(path); !asked {
				t.Errorf("%s was not asked for", path)
			}
		}
	})
}
