package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
)

// barrierWorld is an API server with an object that never changes, a (whose bytes are those of
// [upstream]), one that changes, b, and one that comes and goes, c. A real feed follows it, and
// requests for the newest state come while what the feed hears is late, refused, cut, lost or of
// another past. Time is that of a bubble.
type barrierWorld struct {
	*upstream
	t *testing.T
	c *Collection
	// bound is the age from which on no state is given.
	bound time.Duration

	// What follows is under upstream.mu, like upstream.revision, which is that of all resources.
	pasts []pastWrites
	// begun is when each past began.
	begun []time.Time
	// changed is closed when a stream may have something to tell.
	changed chan struct{}
	// cuts counts how often all streams were cut; away: nobody answers.
	cuts int
	away bool
	// start is the revision at which the API server's memory of changes begins. It is slow until a time.
	start uint64
	slow  time.Time
	// next is what becomes of the next probe. calm: nothing more happens that would keep a
	// request from its answer.
	next     fate
	calm     bool
	asking   int // probes that are under way
	answered int
	found    error
}

// pastWrites has all writes of b and c, in order. A storage that is restored has another one.
type pastWrites []pastWrite

// pastWrite is acknowledged at a time.
type pastWrite struct {
	revision uint64
	at       time.Time
	event    string
	b, c     string // after it; "" if the object is not there
}

// fate is what becomes of a probe.
type fate int

const (
	isAnswered fate = iota
	isRefused
	isForbidden
	isLost
	isSilent
)

// at returns the write that is the newest at a revision, and the first after it.
func (p pastWrites) at(rev uint64) (is, next pastWrite) {
	i, _ := slices.BinarySearchFunc(p, rev+1, func(w pastWrite, rev uint64) int { return int(w.revision) - int(rev) })
	if i < len(p) {
		next = p[i]
	}
	return p[i-1], next
}

func (w *barrierWorld) past() pastWrites { return w.pasts[len(w.pasts)-1] }

// lag is how long something is on its way. Sometimes it stands still.
func (w *barrierWorld) lag() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	seldom := 30
	if time.Now().Before(w.slow) {
		seldom = 3
	}
	if !w.calm && rand.IntN(seldom) == 0 {
		return rand.N(3 * time.Second)
	}
	return rand.N(40 * time.Millisecond)
}

// RoundTrip implements http.RoundTripper.
func (w *barrierWorld) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	w.mu.Lock()
	away, revision, start := w.away, w.revision, w.start
	w.mu.Unlock()
	from, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	switch kind := kindOf(r); {
	case away:
		return nil, io.ErrUnexpectedEOF
	case kind == "load":
		return w.watches(r, 0), nil
	case kind == "watch" && from < start:
		return tooBusy(r, http.StatusGone), nil
	case kind == "watch":
		return w.watches(r, from), nil
	case kind == "probe" && q.Get("watch") == "":
		return w.probe(r)
	case q.Get("limit") == "2":
		w.mu.Lock()
		defer w.mu.Unlock()
		items, more := w.items(from), ""
		if len(items) > 2 {
			more = `,"continue":"x","remainingItemCount":1`
		}
		body := fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[%s,%s]}`+"\n", from, more, items[0], items[1])
		return answered(r, http.StatusOK, body), nil
	case q.Get("resourceVersionMatch") == "Exact" && from > revision:
		return tooBusy(r, http.StatusGatewayTimeout), nil
	}
	return w.upstream.RoundTrip(r)
}

func inJSON(r *http.Request, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {media.JSONType}}, Body: body, Request: r}
}

// items are the objects that there are at a revision.
func (w *barrierWorld) items(rev uint64) []string {
	is, _ := w.past().at(rev)
	if is.c == "" {
		return []string{itemA, is.b}
	}
	return []string{itemA, is.b, is.c}
}

// probe answers how far the API server is at some time after it was asked.
func (w *barrierWorld) probe(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.asking++
	if w.asking > 1 {
		w.found = cmp.Or(w.found, errors.New("two probes at a time"))
	}
	becomes, pasts := w.next, len(w.pasts)
	w.next = isAnswered
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asking--
	}()
	on := clock.Sleep(r.Context(), w.lag())
	if becomes == isSilent {
		<-r.Context().Done()
	}
	w.mu.Lock()
	is := w.revision
	w.mu.Unlock()
	on = on && clock.Sleep(r.Context(), w.lag())
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !on, w.away, len(w.pasts) != pasts, becomes == isLost:
		return nil, io.ErrUnexpectedEOF
	case becomes == isRefused:
		return tooBusy(r, []int{http.StatusTooManyRequests, http.StatusInternalServerError}[rand.IntN(2)]), nil
	case becomes == isForbidden:
		return tooBusy(r, http.StatusForbidden), nil
	}
	return answered(r, http.StatusOK, fmt.Sprintf(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`+"\n", is)), nil
}

// watches answers a watch from a revision on, or a streaming list if that is 0.
func (w *barrierWorld) watches(r *http.Request, from uint64) *http.Response {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		panic(err)
	}
	body, in := io.Pipe()
	w.mu.Lock()
	s := &worldStream{barrierWorld: w, in: in, to: from, cut: w.cuts, short: source.KindOf(r.Context()) == source.ForProgress}
	if from == 0 {
		s.to = w.revision
		for _, item := range w.items(s.to) {
			s.first += inEvent("ADDED", item)
		}
		s.first += bookmark(s.to, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
	}
	w.mu.Unlock()
	go s.run(r.Context(), time.Duration(seconds)*time.Second)
	return inJSON(r, body)
}

// worldStream tells of all writes of b and c, and how far the API server is.
type worldStream struct {
	*barrierWorld
	in    *io.PipeWriter
	first string
	to    uint64 // how far it has told
	cut   int
	// short: it is one beside the stream. due: a bookmark is.
	short, due bool
}

// run writes until the timeout, or until the stream is cut. What it writes is late.
func (s *worldStream) run(ctx context.Context, timeout time.Duration) {
	over, mark := time.NewTimer(timeout), time.NewTimer(s.pause())
	defer over.Stop()
	defer mark.Stop()
	for line := s.first; ; {
		if line != "" {
			if !clock.Sleep(ctx, s.lag()) {
				break
			}
			_, _ = io.WriteString(s.in, line) // or nobody reads it any more
		}
		var changed <-chan struct{}
		if line, changed = s.next(); line != "" {
			continue
		}
		if changed == nil {
			break
		}
		select {
		case <-changed:
			continue
		case <-mark.C:
			s.due = true
			mark.Reset(s.pause())
			continue
		case <-over.C:
		case <-ctx.Done():
		}
		break
	}
	_ = s.in.CloseWithError(ctx.Err())
}

// pause is how long it takes until the next bookmark.
func (s *worldStream) pause() time.Duration {
	if s.short {
		return time.Duration(700+rand.IntN(400)) * time.Millisecond
	}
	return rand.N(6 * time.Second)
}

// next is what is to be told next, or what is closed when there is something; nil if there never
// will be.
func (s *worldStream) next() (line string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != s.cuts {
		return "", nil
	}
	if _, next := s.past().at(s.to); next.revision > 0 {
		s.to = next.revision
		line = next.event
	} else if s.due && s.to <= s.revision {
		s.due = false
		s.to += rand.Uint64N(s.revision - s.to + 1)
		if s.short && (s.calm || rand.IntN(2) == 0) {
			s.to = s.revision
		}
		line = bookmark(s.to, "")
	}
	return line, s.changed
}

// write changes b, or lets c come, change or go; or it changes another resource.
func (w *barrierWorld) write(ours bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeLocked(ours)
}

func (w *barrierWorld) writeLocked(ours bool) {
	w.revision++
	if ours {
		b := strings.Replace(itemBAt(int(w.revision)), `"resourceVersion"`, fmt.Sprintf(`"uid":"%d","resourceVersion"`, len(w.pasts)), 1)
		c := strings.Replace(b, `"name":"b"`, `"name":"c"`, 1)
		last := len(w.pasts) - 1
		is, _ := w.past().at(w.revision)
		is.revision, is.at = w.revision, time.Now()
		switch comes, n := is.c == "", rand.IntN(4); {
		case n < 2:
			is.b, is.event = b, inEvent("MODIFIED", b)
		case comes:
			is.c, is.event = c, inEvent("ADDED", c)
		case n == 2:
			is.c, is.event = c, inEvent("MODIFIED", c)
		default:
			is.c, is.event = "", inEvent("DELETED", c)
		}
		w.pasts[last] = append(w.pasts[last], is)
	}
	w.tellLocked()
}

func (w *barrierWorld) tellLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// cutAll breaks all streams.
func (w *barrierWorld) cutAll(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts++
	w.away = away
	w.tellLocked()
}

// restore puts another past in place of the last few changes. The API server is stopped for that, which
// takes its time. One with a watch cache remembers nothing from before; one without, every other time,
// tells what etcd has of it. The revision is lower than one that the feed has seen, or a number was
// added to it that is larger than what etcd writes in a day. (What cannot be told from its revision is
// found by comparing.)
func (w *barrierWorld) restore() {
	w.cutAll(true)
	time.Sleep(Skew + time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.revision
	if seen := w.c.floor(); seen > 0 {
		was = min(was, seen)
	}
	back := was - min(was-8, 1+rand.Uint64N(8))
	i := slices.IndexFunc(w.past(), func(w pastWrite) bool { return w.revision > back })
	if i < 0 {
		i = len(w.past())
	}
	w.pasts, w.revision = append(w.pasts, slices.Clone(w.past()[:i])), back
	if back == was || rand.IntN(4) == 0 {
		w.revision += aDay + 20
		w.writeLocked(true)
	}
	if w.start = min(w.start, w.revision); rand.IntN(2) == 0 {
		w.start = w.revision
	}
	w.begun = append(w.begun, time.Now())
	w.away, w.slow = false, time.Now().Add(10*time.Second)
}

// step lets one thing happen.
func (w *barrierWorld) step(asking *sync.WaitGroup) {
	time.Sleep(time.Duration(1+rand.IntN(30)) * time.Millisecond)
	switch n := rand.IntN(100); {
	case n < 25:
		w.write(true)
	case n < 40:
		w.write(false)
	case n < 75:
		for range 1 + rand.IntN(4) {
			w.ask(asking, 1500*time.Millisecond, false)
			w.askAny()
		}
	case n < 80:
		w.mu.Lock()
		w.next = fate(rand.IntN(int(isSilent) + 1))
		w.mu.Unlock()
	case n < 82:
		w.cutAll(false)
	case n < 83:
		w.mu.Lock()
		w.start = w.revision // and a watch from before is told so
		w.cuts++
		w.tellLocked()
		w.mu.Unlock()
	case n < 84:
		for range rand.IntN(12) {
			w.write(false) // and the feed hears of it
		}
		w.ask(asking, 1500*time.Millisecond, false)
		time.Sleep(rand.N(3 * time.Second))
		w.restore()
		for range 1000 { // until the feed is there, and has noticed
			if w.c.view.Load().streams {
				break
			}
			w.ask(asking, 1500*time.Millisecond, false)
			w.askAny()
			time.Sleep(rand.N(200 * time.Millisecond))
		}
	case n < 86:
		time.Sleep(rand.N(2 * time.Minute))
	case n < 92:
		w.c.AwaitLoad(w.t.Context(), time.Minute, false)
	}
}

// ask asks for the newest state, and looks at the answer. must: there must be one.
func (w *barrierWorld) ask(asking *sync.WaitGroup, atMost time.Duration, must bool) {
	w.mu.Lock()
	came, past := time.Now(), len(w.pasts)-1
	w.mu.Unlock()
	spin := rand.IntN(20_000)
	asking.Go(func() {
		for range spin { // so that they come while the feed asks
		}
		snap, why := w.c.Fresh(w.t.Context(), w.c.probes.Last(), atMost)
		w.mu.Lock()
		defer w.mu.Unlock()
		switch err := error(nil); {
		case why == reason.None:
			w.answered++
			for _, p := range w.pasts[past:] { // one of those that there were meanwhile
				if err = p.allows(snap, came); err == nil {
					return
				}
			}
			w.found = cmp.Or(w.found, err)
		case must:
			w.found = cmp.Or(w.found, fmt.Errorf("not answered though nothing was in the way: %q", why))
		}
	})
}

// askAny asks for any state that is younger than the bound, and looks at it.
func (w *barrierWorld) askAny() {
	snap, why := w.c.Latest(w.t.Context(), 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if why != reason.None {
		return
	}
	old, err := time.Now().Add(-w.bound), error(nil)
	for i, p := range w.pasts {
		if i+1 < len(w.pasts) && w.begun[i+1].Before(old) {
			continue // there was another by then
		}
		if err = p.allows(snap, old); err == nil {
			return
		}
	}
	w.found = cmp.Or(w.found, err)
}

// allows says why a state is none that somebody may be given who came at a time: it is not true, or
// it lacks what was acknowledged before.
func (p pastWrites) allows(snap Snapshot, came time.Time) error {
	is, next := p.at(snap.Revision)
	for name, want := range map[string]string{"b": is.b, "c": is.c} {
		has := ""
		if o, found := snap.tree.Get(index.JoinKey("n", name)); found {
			has = string(o.Bytes)
		}
		if has != want {
			return fmt.Errorf("the answer at revision %d has %q, want %q", snap.Revision, has, want)
		}
	}
	if next.revision > 0 && next.at.Before(came) {
		return fmt.Errorf("the answer at revision %d lacks the write at %d", snap.Revision, next.revision)
	}
	return nil
}

// live runs a feed in a world, while things happen and after that, and returns how many requests
// were answered.
func (w *barrierWorld) live() int {
	w.upstream = &upstream{revision: 10}
	w.exactly = func(rev string) []string {
		at, _ := strconv.ParseUint(rev, 10, 64)
		return w.items(at)
	}
	w.pasts, w.changed = []pastWrites{{{}, {revision: 7, b: itemB}}}, make(chan struct{})
	w.begun, w.bound = []time.Time{time.Now()}, []time.Duration{time.Second, 90 * time.Second}[rand.IntN(2)]
	c := fedWith(w.t, w, time.Second, Settings{}, w.bound)
	w.mu.Lock()
	w.c = c
	w.mu.Unlock()
	var asking sync.WaitGroup
	for range 150 {
		if w.step(&asking); w.wrong() != nil {
			break
		}
	}
	asking.Wait()
	w.mu.Lock()
	w.next, w.calm = isAnswered, true
	w.mu.Unlock()
	time.Sleep(5 * time.Minute) // nothing is in doubt or spared any more
	for range 20 {
		w.write(rand.IntN(2) == 0)
		time.Sleep(rand.N(300 * time.Millisecond))
		for range 4 {
			w.ask(&asking, 5*time.Second, true)
		}
		asking.Wait()
	}
	return w.answered
}

// wrong is what was found.
func (w *barrierWorld) wrong() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}

// TestAnsweredImpliesProven: whatever happens in whatever order, what is answered as the newest
// state holds every write that was acknowledged before the request came; and what is answered as any
// state, every write that is older than the bound.
func TestAnsweredImpliesProven(t *testing.T) {
	answers, found := 0, error(nil)
	for world := 0; world < 100 && found == nil; world++ {
		synctest.Test(t, func(t *testing.T) {
			w := &barrierWorld{t: t}
			answers += w.live()
			found = w.wrong()
		})
		if found != nil {
			t.Errorf("in world %d, after %d answers: %v", world, answers, found)
		}
	}
	if answers < 1000 {
		t.Errorf("only %d requests were answered", answers)
	}
}
