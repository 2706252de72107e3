package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/soak"
)

var (
	soakFor  = flag.Duration("faults.soak", 0, "for how long TestSoak runs; 0: not at all")
	soakSeed = flag.Uint64("faults.seed", 0, "the seed for the order of TestSoak's faults; 0: from the clock")
	binary   = flag.String("faults.listproxy", "", "a listproxy to test instead of one with the race detector")
)

const (
	// maxFaultPause is the longest pause between two faults.
	maxFaultPause = 8 * time.Second
	// soakHistory is short, so that memory stops growing soon.
	soakHistory = 20 * time.Second
)

// TestSoak: one fault after the other is caused for hours, while clients ask, and callers, namespaces and objects come and go
// (the turnover). No answer is wrong. Whenever clients rest, and at the end, all followers have the true state. From the
// first rest to the last, listproxy's memory, goroutines, file descriptors and connections hardly grow ([soak.Growths]).
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		return // make soak runs it
	}
	program, err := listproxyProgram(harness.BuildProxy)
	expect.NoError(t, err)
	s := newScene(t, brokenStage, "soak", program)
	s.args = []string{
		"--eager", eagerFlag(), "--history-window", soakHistory.String(), "--self-check-interval", "10s", "--idle-timeout", idleTimeout.String(),
	}
	s.startListproxy()
	s.follow()
	conclude := s.startLoad()
	s.awaitRecovery()
	turnover := s.startTurnover()
	var samples []soak.Sample
	rests := 0
	faults := s.causeFaults(time.Now(), func() {
		rests++
		samples = append(samples, turnover.rest(rests)...)
	})
	turnover.stop()
	conclude()
	turnover.judge()
	s.judgeSoak(samples, faults)
}

// causeFaults causes faults until -faults.soak is over, and returns the number of each. In a soak of six hours it calls rest
// after two hours, when listproxy's memory has stopped growing, then each hour, and at the end.
func (s *scene) causeFaults(started time.Time, rest func()) map[string]int {
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) // #nosec G115 -- any number will do
	}
	harness.Log(fmt.Sprintf("soak: %v, seed %d (again: -faults.seed=%d)", *soakFor, seed, seed))
	random := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- it is to be repeatable
	cases := slices.DeleteFunc(faultCases(), func(c faultCase) bool { return !c.inSoak })
	counts := map[string]int{}
	var deck []int // indices of cases; each case is taken once before a new deck is shuffled
	nextRest := *soakFor / 3
	for clock.Sleep(s.Context(), time.Duration(random.Int64N(int64(maxFaultPause)))) && time.Since(started) < *soakFor {
		if time.Since(started) >= nextRest {
			rest()
			for time.Since(started) >= nextRest { // a rest may be longer than a sixth of a short soak
				nextRest += *soakFor / 6
			}
		}
		if len(deck) == 0 {
			deck = random.Perm(len(cases))
		}
		c := cases[deck[0]]
		deck = deck[1:]
		s.causeFault(c, started)
		counts[c.name]++
	}
	rest()
	return counts
}

// causeFault causes the fault of a case, waits for the recovery, and logs both with what the soak has counted so far.
func (s *scene) causeFault(c faultCase, soakStarted time.Time) {
	begun := time.Now()
	s.faultBegins()
	mended := c.fault(s)
	s.awaitRecovery()
	seen := s.Tally.Counts(load.Window{})
	harness.Log(fmt.Sprintf("soak: %v: %s for %.1f s, back after %.1f s; %d compared, %d wrong, %.0f %% from memory",
		time.Since(soakStarted).Round(time.Second), c.name, mended.Sub(begun).Seconds(), time.Since(mended).Seconds(),
		seen.Compared, len(seen.Mistakes), seen.HitPercent()))
}

// judgeSoak reports what was counted, and fails the test for mistakes, growth, and a soak that was too short to show
// anything.
func (s *scene) judgeSoak(samples []soak.Sample, faults map[string]int) {
	checks := s.countSelfChecks("")
	agreements, mismatches := s.countSelfChecks("agrees"), s.countSelfChecks("mismatch")
	if mismatches > 0 {
		s.Tally.AddMistake("%.0f self-checks found a mismatch", mismatches)
	}
	if agreements <= checks/2 { // a self-check during a fault may have no result
		s.Errorf("%.0f of %.0f self-checks agree, want more than half", agreements, checks)
	}
	seen := s.Tally.Counts(load.Window{})
	var report strings.Builder
	_, _ = fmt.Fprintf(&report, "soak of %v: %d answers compared, %d wrong, %.0f %% from memory, of which %d are consistent lists; "+
		"%d requests failed; followers reached the true state %d times; %.0f self-checks, of which %.0f agree\n",
		*soakFor, seen.Compared, len(seen.Mistakes), seen.HitPercent(), seen.Consistent, seen.Failed, seen.Converged, checks, agreements)
	for name, times := range faults {
		_, _ = fmt.Fprintf(&report, "  %3d × %s\n", times, name)
	}
	growths, err := soak.Growths(samples)
	if err != nil {
		s.Error(err)
	}
	for _, g := range growths {
		_, _ = fmt.Fprintf(&report, "  %v\n", g)
		if g.Grows() {
			s.Errorf("%v", g)
		}
	}
	_, _ = fmt.Fprint(os.Stdout, report.String())
	s.Tally.ReportMistakes(s)
	if len(faults) == 0 || seen.Hits == 0 || seen.Consistent == 0 {
		s.Errorf("%d faults; %d lists from memory, %d of them consistent: let it run longer", len(faults), seen.Hits, seen.Consistent)
	}
}
