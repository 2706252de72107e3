package snapshot

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/inmemory"
)

// newestModel is a real feed that follows an API server in memory, while answers and events are late, lost
// or cut off, and the API server stands still, refuses, starts again or has another past. Requests for the
// newest state, and for any, come all the time. Each answer is held against all that ever happened.
type newestModel struct {
	*plane
	t *testing.T
	c *Collection
	// bound is the age from which on no state is given.
	bound time.Duration

	mu sync.Mutex
	// calm: nothing more happens that would keep a request from its answer.
	calm     bool
	begun    []time.Time // when each past began
	answered int
	found    error
}

// lag is how long something is on its way. Sometimes it stands still.
func (m *newestModel) lag() time.Duration {
	if m.chance(30) {
		return rand.N(3 * time.Second)
	}
	return rand.N(40 * time.Millisecond)
}

// chance happens once in so many times, but never while all is calm.
func (m *newestModel) chance(of int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.calm && rand.IntN(of) == 0
}

// RoundTrip implements http.RoundTripper: the request, the answer and each line of it are late, some answers
// are lost, and some are cut off.
func (m *newestModel) RoundTrip(r *http.Request) (*http.Response, error) {
	if !clock.Sleep(r.Context(), m.lag()) {
		return nil, r.Context().Err()
	}
	res, err := m.plane.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if !clock.Sleep(r.Context(), m.lag()) || m.chance(40) {
		_ = res.Body.Close()
		return nil, cmp.Or(r.Context().Err(), io.ErrUnexpectedEOF)
	}
	body, late := io.Pipe()
	from := res.Body
	go func() {
		defer func() { _ = from.Close() }()
		for in := bufio.NewReader(from); ; {
			line, err := in.ReadString('\n')
			if line != "" {
				clock.Sleep(r.Context(), m.lag())
				_, _ = io.WriteString(late, line) // or nobody reads it any more
			}
			if err == nil && m.chance(40) {
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

// write changes one of a few widgets, or lets one come or go; or it changes another resource.
func (m *newestModel) write(ours bool) {
	o := inmemory.Object{Namespace: "n", Name: fmt.Sprint(rand.IntN(3))}
	switch {
	case !ours:
		m.Put(others, o)
	case rand.IntN(5) == 0:
		m.Delete(inmemory.Widgets, o)
	default:
		m.Put(inmemory.Widgets, o)
	}
}

// restart ends the API server and starts it again: it remembers nothing from before. With restored, etcd is
// taken back while it is away: to before what the feed has seen, and as often as not it is written to until it
// has passed that. (What cannot be told by the feed from its revisions is found by comparing.)
func (m *newestModel) restart(restored bool) {
	m.server.Stop()
	if restored {
		time.Sleep(Skew + time.Second)
		seen := min(m.Revision(), int64(m.c.floor())) // #nosec G115 -- revisions are small here
		m.Restore(max(101, seen-1-rand.Int64N(8)))
	}
	m.server.Start(release)
	if restored {
		m.mu.Lock()
		m.begun = append(m.begun, time.Now())
		m.mu.Unlock()
		if rand.IntN(2) == 0 {
			for range 12 {
				m.write(true)
			}
		}
	}
}

// step lets one thing happen.
func (m *newestModel) step(asking *sync.WaitGroup) {
	time.Sleep(time.Duration(1+rand.IntN(30)) * time.Millisecond)
	switch n := rand.IntN(100); {
	case n < 25:
		m.write(true)
	case n < 40:
		m.write(false)
	case n < 75:
		for range 1 + rand.IntN(4) {
			m.ask(asking, 1500*time.Millisecond, false)
			m.askAny()
		}
	case n < 77:
		m.server.Refuse([]int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusForbidden}[rand.IntN(3)])
		time.AfterFunc(rand.N(time.Second), m.server.Heal)
	case n < 78:
		m.server.Hang()
		time.AfterFunc(rand.N(20*time.Second), m.server.Heal)
	case n < 80:
		m.server.Freeze()
		time.AfterFunc(rand.N(5*time.Second), m.server.Heal)
	case n < 82:
		m.restart(false)
	case n < 83:
		m.ask(asking, 1500*time.Millisecond, false)
		time.Sleep(rand.N(3 * time.Second))
		m.restart(true)
		for range 1000 { // until the feed is there, and has noticed
			if m.c.view.Load().streams {
				break
			}
			m.ask(asking, 1500*time.Millisecond, false)
			m.askAny()
			time.Sleep(rand.N(200 * time.Millisecond))
		}
	case n < 85:
		time.Sleep(rand.N(2 * time.Minute))
	case n < 91:
		m.c.AwaitLoad(m.t.Context(), time.Minute, false)
	}
}

// ask asks for the newest state, and looks at the answer. must: there must be one.
func (m *newestModel) ask(asking *sync.WaitGroup, atMost time.Duration, must bool) {
	came, past := time.Now(), m.Pasts()-1
	asking.Go(func() {
		s, why := m.c.Fresh(m.t.Context(), m.c.probes.Last(), atMost)
		if why == reason.None {
			m.judge(s, past, came)
		} else if must {
			m.wrong(fmt.Errorf("not answered though nothing was in the way: %q", why))
		}
	})
}

// askAny asks for any state that is younger than the bound, and looks at it.
func (m *newestModel) askAny() {
	s, why := m.c.Latest(m.t.Context(), 0)
	if why != reason.None {
		return
	}
	old, past := time.Now().Add(-m.bound), 0
	m.mu.Lock()
	for i, begun := range m.begun {
		if begun.Before(old) {
			past = i
		}
	}
	m.mu.Unlock()
	m.judge(s, past, old)
}

// judge looks whether a state is one that may be given to somebody who wants all that was written before a
// time, in a past or a later one.
func (m *newestModel) judge(s Snapshot, past int, before time.Time) {
	m.mu.Lock()
	m.answered++
	m.mu.Unlock()
	got, last := written(s), m.Pasts()-1
	for p := last; p >= past; p-- {
		if m.list(p, s.Revision) != got {
			continue
		}
		if head := m.HeadAt(before); p == last && int64(s.Revision) < head { // #nosec G115 -- revisions are small here
			m.wrong(fmt.Errorf("the answer lacks what was written up to revision %d: %s", head, got))
		}
		return
	}
	m.wrong(fmt.Errorf("there was no such state, but %s: %s", m.list(last, s.Revision), got))
}

// wrong notes what was found.
func (m *newestModel) wrong(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.found = cmp.Or(m.found, err)
}

// isWrong is what was found.
func (m *newestModel) isWrong() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.found
}

// live runs a feed while things happen, and after that.
func (m *newestModel) live() {
	m.plane = newPlane(m.t)
	m.begun, m.bound = []time.Time{time.Now()}, []time.Duration{20 * time.Second, 90 * time.Second}[rand.IntN(2)]
	for range rand.IntN(5) {
		m.write(true)
	}
	c, absence := collectionsOf(m.t, m, func(c *Config) { c.Limits.Staleness = m.bound }).Use(widgets)
	if absence != reason.None {
		m.t.Fatal(absence)
	}
	m.c = c
	time.Sleep(time.Second)
	var asking sync.WaitGroup
	for range 400 {
		if m.step(&asking); m.isWrong() != nil {
			break
		}
	}
	asking.Wait()
	m.mu.Lock()
	m.calm = true
	m.mu.Unlock()
	time.Sleep(5 * time.Minute) // nothing is in doubt or spared any more
	for range 20 {
		m.write(rand.IntN(2) == 0)
		time.Sleep(rand.N(300 * time.Millisecond))
		for range 4 {
			m.ask(&asking, 5*time.Second, true)
		}
		asking.Wait()
	}
}

// TestAnsweredImpliesProven: whatever happens in whatever order, what is answered as the newest
// state holds every write that was acknowledged before the request came; and what is answered as any
// state, every write that is older than the bound.
func TestAnsweredImpliesProven(t *testing.T) {
	answers, found := 0, error(nil)
	for world := 0; world < 40 && found == nil; world++ {
		synctest.Test(t, func(t *testing.T) {
			m := &newestModel{t: t}
			m.live()
			answers += m.answered
			found = m.isWrong()
		})
		if found != nil {
			t.Errorf("in world %d, after %d answers: %v", world, answers, found)
		}
	}
	if answers < 1000 {
		t.Errorf("only %d requests were answered", answers)
	}
}
