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

	"github.com/listproxy/listproxy/test/expect"
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

// soakFaults are the cases that TestSoak chooses from: those that leave the past as it is, and
// listproxy alive, since it is measured.
func soakFaults() []string {
	return []string{
		"apiserver_killed", "apiserver_restarted", "apiserver_paused", "etcd_killed", "etcd_compacted", "etcd_defragmented",
		"connections_cut", "connections_half_open", "upstream_silent", "watches_delayed_unevenly", "watches_delayed_ever_more",
		"watches_told_410", "watches_garbled", "watches_refused_410", "watches_refused_429", "watches_refused_500",
		"answered_late", "half_refused", "clients_slow_and_stuck",
	}
}

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
	plane, leave, err := broken.enter(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	expect.NoError(t, err)
	t.Setenv("GODEBUG", "memprofilerate=65536") // of listproxy, for what its heap has more at the end
	s := newScene(t, plane, "soak", *binary)
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
	m := &meter{
		scene: s, began: time.Now(), first: map[string]soak.Stacks{}, more: map[string]string{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var measuring sync.WaitGroup
	measuring.Go(func() { m.run(ctx) })
	defer measuring.Wait()
	defer cancel()
	faults := s.breakUntil(m.began.Add(*soakFor), rests(m.began, *soakFor), func() {
		turnover.rest(func(begins bool) {
			if !begins {
				m.takeStacks()
			}
			m.rest(begins)
		})
	})

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
	all := slices.DeleteFunc(faultCases(), func(c faultCase) bool { return !slices.Contains(soakFaults(), c.name) })
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
	samples := m.taken()
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
	for _, name := range soakFaults() {
		total += faults[name]
		_, _ = fmt.Fprintf(&report, "  %3d × %s\n", faults[name], name)
	}
	if total == 0 {
		s.Error("nothing was broken: let it run longer")
	}
	for _, g := range growths {
		_, _ = fmt.Fprintf(&report, "  %v\n", g)
		if g.Grows() {
			s.Errorf("%v", g)
			s.Logf("goroutines of the last rest that the first did not have:%s", m.more["goroutine"])
			s.Logf("bytes of the heap's samples of the last rest that the first did not have:%s", m.more["heap"])
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
	first   map[string]soak.Stacks // the profiles of the first rest
	more    map[string]string      // what the last rest has more
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

// takeStacks compares the goroutines and the heap with those of the first rest.
func (m *meter) takeStacks() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for profile, least := range map[string]int{"goroutine": 1, "heap": 64 << 10} {
		stacks, err := soak.TakeStacks(m.scene.Context(), m.scene.proxies.All()[0].AdminURL(), profile)
		if err != nil {
			m.scene.Tally.Wrong("listproxy's %s profile cannot be read: %v", profile, err)
		} else if first, ok := m.first[profile]; ok {
			m.more[profile] = stacks.More(first, least)
		} else {
			m.first[profile] = stacks
		}
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

func (m *meter) taken() []soak.Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.samples)
}

// TestSoakFaults: the names are those of cases that soak may choose.
func TestSoakFaults(t *testing.T) {
	for _, name := range soakFaults() {
		i := slices.IndexFunc(faultCases(), func(c faultCase) bool { return c.name == name })
		switch {
		case i < 0:
			t.Errorf("no case is called %s", name)
		case faultCases()[i].replaces:
			t.Errorf("%s replaces the past", name)
		case faultCases()[i].jumps:
			t.Errorf("%s is for another listproxy", name)
		}
	}
}
