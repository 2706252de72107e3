package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

var (
	soakFor  = flag.Duration("faults.soak", 0, "for how long TestSoak runs; 0: not at all")
	soakSeed = flag.Uint64("faults.seed", 0, "which faults TestSoak chooses, in which order; 0: of the clock")
	binary   = flag.String("faults.listproxy", "", "a listproxy to test instead of one with the race detector")
)

const (
	// calmAtMost is how long nothing is broken between two faults, at most.
	calmAtMost = 8 * time.Second
	sampleEach = time.Second
	tellEach   = 30 * time.Second
	// soakHistory is short, so that memory is flat soon.
	soakHistory = 20 * time.Second
)

// TestSoak lets everything run together for a long time: writers, askers, pagers, followers, the
// oracle, callers, namespaces and collections that come and go (turnover), and one fault after the
// other. At every rest and in the end all followers must know the true state; there must be no wrong
// answer, and listproxy must take no more of the machine than before. make soak runs it.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		return // asked for by make soak
	}
	s := newScene(t, broken, "soak", *binary)
	mend(s)
	defer s.proxies.Stop(s)
	s.args = []string{"--eager", eager(), "--history-window", soakHistory.String(), "--self-check-interval", "10s", "--idle-timeout", idleTimeout.String()}
	s.start()
	s.follow()
	quiet, end := s.load()
	defer end()
	s.recover()
	turning, turned := context.WithCancel(t.Context())
	turnover, wait := s.turnOver(turning)
	defer wait()
	defer turned()
	m := &meter{scene: s, began: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var measuring sync.WaitGroup
	measuring.Go(func() { m.run(ctx) })
	defer measuring.Wait()
	defer cancel()
	faults := s.breakUntil(m.began.Add(*soakFor), rests(m.began, *soakFor), func() { turnover.rest(m.rest) })

	cancel()
	measuring.Wait()
	turned()
	wait()
	quiet()
	s.settled()
	if err := s.Oracle.Drain(t.Context(), patience); err != nil {
		t.Error(err)
	}
	s.judgeSoak(m, turnover, faults)
}

// rests is when a soak rests before its end: first when a third of it is over, by when it has
// settled, then after each sixth.
func rests(began time.Time, lasts time.Duration) []time.Time {
	sixth := lasts / 6
	at := []time.Time{began.Add(2 * sixth)}
	for range 3 {
		at = append(at, at[len(at)-1].Add(sixth))
	}
	return at
}

// due reports whether it is time for the first of them.
func due(rests []time.Time) bool { return len(rests) > 0 && !time.Now().Before(rests[0]) }

// breakUntil causes faults until it is time to end, with rests between them, and returns how many
// of each there were.
func (s *scene) breakUntil(end time.Time, rests []time.Time, rest func()) map[string]int {
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) // #nosec G115 -- any number will do
	}
	harness.Log(fmt.Sprintf("soak: %v, seed %d (again: -faults.seed=%d)", *soakFor, seed, seed))
	random := rand.New(rand.NewPCG(seed, 6)) // #nosec G404 -- it is to be repeatable
	all := slices.DeleteFunc(faultCases(), func(c faultCase) bool { return !c.soaks })
	done := map[string]int{}
	var deck []int // each once before one comes again
	for poll.Pause(s.Context(), time.Duration(random.Int64N(int64(calmAtMost)))) && time.Now().Before(end) {
		if due(rests) {
			rest()
			for due(rests) { // a short soak has no time for all of them
				rests = rests[1:]
			}
		}
		if len(deck) == 0 {
			deck = random.Perm(len(all))
		}
		c := all[deck[0]]
		deck = deck[1:]
		begun := time.Now()
		s.breaks()
		over := c.fault(s)
		s.recover()
		done[c.name]++
		harness.Log(fmt.Sprintf("soak: %s for %.1f s, back after %.1f s", c.name, over.Sub(begun).Seconds(), time.Since(over).Seconds()))
	}
	rest()
	return done
}

// judgeSoak says what was seen, and what of it must not be.
func (s *scene) judgeSoak(m *meter, turned *turnover, faults map[string]int) {
	for _, relapse := range s.Oracle.Relapses() {
		s.Tally.Wrong("%s", relapse)
	}
	samples := m.samples // it has ended
	growths, err := soak.Grown(samples)
	if err != nil {
		s.Error(err)
		return
	}
	last := samples[len(samples)-1]
	if last.Mismatches > 0 {
		s.Tally.Wrong("%.0f self-checks found something wrong", last.Mismatches)
	}
	if last.Agreements <= last.Checks/2 {
		s.Errorf("of %.0f self-checks only %.0f came to the end that all is as it is kept", last.Checks, last.Agreements)
	}
	r := s.Tally.Counts(load.Window{})
	var report strings.Builder
	_, _ = fmt.Fprintf(&report, "soak of %v: %d answers compared, %d wrong, %.0f %% from memory, %d requests not answered, "+
		"%d of %d followers true, %.0f self-checks, of which %.0f agree and the others were not to be told\n",
		time.Since(m.began).Round(time.Second), r.Compared, r.Wrong, r.Share(), r.Refused, r.Followed,
		len(s.followers)*(m.rests+1), last.Checks, last.Agreements)
	_, _ = fmt.Fprintf(&report, "  %d lists from memory named no revision, and had to hold all that was written before\n", r.Recent)
	_, _ = fmt.Fprintf(&report, "  %s\n", turned.judge())
	total := 0
	for name, times := range faults {
		total += times
		_, _ = fmt.Fprintf(&report, "  %3d × %s\n", times, name)
	}
	if total == 0 {
		s.Error("nothing was broken: let it run longer")
	}
	for _, g := range growths {
		_, _ = fmt.Fprintf(&report, "  %v\n", g)
		if g.Grows() {
			s.Errorf("%v", g)
		}
	}
	_, _ = fmt.Fprint(os.Stdout, report.String())
	s.Tally.Judge(s)
	if r.Hits == 0 || r.Recent == 0 {
		s.Errorf("from memory came %d lists, and %d newest ones", r.Hits, r.Recent)
	}
}

// meter measures listproxy beside all that goes on. Safe for concurrent use.
type meter struct {
	scene *scene
	began time.Time

	mu      sync.Mutex
	rests   int // so many have begun
	resting bool
	samples []soak.Sample
}

// run measures until ctx ends, and tells how it goes.
func (m *meter) run(ctx context.Context) {
	told := m.began
	for poll.Pause(ctx, sampleEach) {
		before := m.inRest()
		sample, err := m.take(ctx, before > 0)
		if err != nil {
			if ctx.Err() == nil {
				m.scene.Tally.Wrong("listproxy cannot be measured: %v", err)
			}
			continue
		}
		sample.Upstream = float64(m.scene.hop.Connections())
		if before == m.inRest() {
			sample.Rest = before
		}
		m.mu.Lock()
		m.samples = append(m.samples, sample)
		m.mu.Unlock()
		if time.Since(told) >= tellEach {
			told = time.Now()
			m.tell(sample)
		}
	}
}

// take takes a sample, of nothing but what is in use if that is asked for.
func (m *meter) take(ctx context.Context, inUse bool) (soak.Sample, error) {
	url := m.scene.proxies.All()[0].AdminURL()
	if inUse {
		if err := soak.Collect(ctx, url); err != nil {
			return soak.Sample{}, err
		}
	}
	return soak.Take(ctx, url+"/metrics")
}

// rest is told when a rest begins and when it ends.
func (m *meter) rest(begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resting = begins
	if begins {
		m.rests++
		harness.Log(fmt.Sprintf("soak: rest %d", m.rests))
	}
}

// inRest returns the number of the rest that there is now, or 0.
func (m *meter) inRest() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.resting {
		return 0
	}
	return m.rests
}

func (m *meter) tell(s soak.Sample) {
	r := m.scene.Tally.Counts(load.Window{})
	harness.Log(fmt.Sprintf("soak: %v: %d compared, %d wrong, %.0f %% from memory, "+
		"%.0f MiB resident, %.1f MiB of heap, %.0f goroutines, %.0f file descriptors, %.0f connections to the API server",
		s.At.Sub(m.began).Round(time.Second), r.Compared, r.Wrong, r.Share(), s.RSS/(1<<20), s.Heap/(1<<20), s.Goroutines, s.FDs, s.Upstream))
}
