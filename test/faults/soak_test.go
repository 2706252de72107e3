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
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
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
	s.args = []string{"--eager", eager(), "--history-window", soakHistory.String(), "--self-check-interval", "10s", "--idle-timeout", idleTimeout.String()}
	s.start()
	s.follow()
	conclude := s.load()
	s.recover()
	turnover := s.turnOver()
	var samples []soak.Sample
	rests := 0
	faults := s.breakUntil(time.Now(), func() {
		rests++
		samples = append(samples, turnover.rest(rests)...)
	})
	turnover.end()
	conclude()
	turnover.judge()
	s.judgeSoak(samples, faults)
}

// breakUntil causes faults, since it began until it is time to end, and returns how many of each there
// were. In between are rests: the first when a third of the time is over, by when listproxy has settled,
// then one after each sixth.
func (s *scene) breakUntil(began time.Time, rest func()) map[string]int {
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) // #nosec G115 -- any number will do
	}
	harness.Log(fmt.Sprintf("soak: %v, seed %d (again: -faults.seed=%d)", *soakFor, seed, seed))
	random := rand.New(rand.NewPCG(seed, 6)) // #nosec G404 -- it is to be repeatable
	all := slices.DeleteFunc(faultCases(), func(c faultCase) bool { return !c.soaks })
	done := map[string]int{}
	var deck []int // each once before one comes again
	nextRest := *soakFor / 3
	for clock.Sleep(s.Context(), time.Duration(random.Int64N(int64(calmAtMost)))) && time.Since(began) < *soakFor {
		if time.Since(began) >= nextRest {
			rest()
			for time.Since(began) >= nextRest { // a short soak has no time for all of them
				nextRest += *soakFor / 6
			}
		}
		if len(deck) == 0 {
			deck = random.Perm(len(all))
		}
		c := all[deck[0]]
		deck = deck[1:]
		begun := time.Now()
		s.faultBegins()
		over := c.fault(s)
		s.recover()
		done[c.name]++
		r := s.Tally.Counts(load.Window{})
		harness.Log(fmt.Sprintf("soak: %v: %s for %.1f s, back after %.1f s; %d compared, %d wrong, %.0f %% from memory",
			time.Since(began).Round(time.Second), c.name, over.Sub(begun).Seconds(), time.Since(over).Seconds(), r.Compared, len(r.Mistakes), r.Share()))
	}
	rest()
	return done
}

// judgeSoak says what was seen, and what of it must not be.
func (s *scene) judgeSoak(samples []soak.Sample, faults map[string]int) {
	checks, agreements, mismatches := s.selfChecks(""), s.selfChecks("agrees"), s.selfChecks("mismatch")
	if mismatches > 0 {
		s.Tally.Wrong("%.0f self-checks found something wrong", mismatches)
	}
	if agreements <= checks/2 {
		s.Errorf("of %.0f self-checks only %.0f came to the end that all is as it is kept", checks, agreements)
	}
	r := s.Tally.Counts(load.Window{})
	var report strings.Builder
	_, _ = fmt.Fprintf(&report, "soak of %v: %d answers compared, %d wrong, %.0f %% from memory, of which %d named no revision, and had to hold all "+
		"that was written before; %d requests not answered; followers came to the true state %d times; %.0f self-checks, of which %.0f agree\n",
		*soakFor, r.Compared, len(r.Mistakes), r.Share(), r.Recent, r.Refused, r.Followed, checks, agreements)
	for name, times := range faults {
		_, _ = fmt.Fprintf(&report, "  %3d × %s\n", times, name)
	}
	growths, err := soak.Grown(samples)
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
	s.Tally.Judge(s)
	if len(faults) == 0 || r.Hits == 0 || r.Recent == 0 {
		s.Errorf("%d faults; from memory came %d lists, and %d newest ones: let it run longer", len(faults), r.Hits, r.Recent)
	}
}
