package faults

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
)

// faultCase is a fault, and what may happen while it lasts.
type faultCase struct {
	name  string
	suite suite
	// inSoak means that TestSoak causes the fault, too: etcd is not replaced, and the measured listproxy survives.
	inSoak   bool
	stage    *stage   // stage is where the case runs; nil: quietStage.
	args     []string // args are further arguments of listproxy.
	replicas int      // replicas is the number of listproxies before the fault; 0: one.
	shell    string   // shell has commands that a shell runs before it becomes listproxy.
	// noSelfChecks turns listproxy's self-checks off. Otherwise one must agree in the end, unless the timeline is another one.
	noSelfChecks bool
	// withoutRace runs a listproxy without the race detector, which takes several times the memory.
	withoutRace bool
	bound       time.Duration // bound is --staleness-bound; 0: [load.Bound].
	breaksOften bool          // breaksOften sets [load.Load.BreaksOften].

	// prepare is called before listproxy starts, unless it is nil.
	prepare func(s *scene)
	// fault causes the fault and ends it. It returns the time from which recovery is measured, usually the end.
	fault func(s *scene) (mended time.Time)

	// What may happen, and what must.

	// wantHistoryKept: listproxy must still know every revision that it knew before.
	wantHistoryKept bool
	// replacesEtcd: after the fault, the timeline is another one.
	replacesEtcd bool
	// mayForward: collections need not be in memory, so neither answers nor watches need come from there. Hits during the
	// fault are compared all the same.
	mayForward bool
	// noHitsBecause says why no answer has to come from memory during the fault; "": at least one has to.
	noHitsBecause string
	// wantReadersServed: in an outage, lists of any version and next pages must be answered.
	wantReadersServed bool
	// wantAllAnswered: every request must be answered, and watches must end in order.
	wantAllAnswered bool
	// wantNobodyRejected: etcd is not compacted and no rights change, so no token and no revision may be refused.
	wantNobodyRejected bool
}

// suite is a make target. A case runs in its own and in those before it, which run more cases.
type suite int

const (
	makeFaults  suite = iota // every case
	makeTestAll              // one case of each kind, those that break most
	makeTest                 // two short cases
)

var all = flag.Bool("faults.all", false, "run every case, not only those of make test-all")

// TestFaults: whatever breaks around listproxy, no answer is wrong, and all clients have the true state in the end.
func TestFaults(t *testing.T) {
	chosen := makeTestAll
	if testing.Short() {
		chosen = makeTest
	}
	if *all {
		chosen = makeFaults
	}
	for _, c := range faultCases() {
		if c.suite < chosen {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			program, err := c.buildProgram(t.TempDir())
			expect.NoError(t, err)
			c.run(t, program)
		})
	}
}

// buildProgram returns the path of the program that the case runs as listproxy; "": the one with the race detector.
func (c faultCase) buildProgram(dir string) (program string, err error) {
	program = *binary
	if program == "" && c.withoutRace {
		if program, err = harness.BuildPlainProxy(); err != nil {
			return "", err
		}
	}
	if c.shell == "" {
		return program, nil
	}
	if program == "" {
		if program, err = harness.BuildProxy(); err != nil {
			return "", err
		}
	}
	script := filepath.Join(dir, "listproxy")
	text := "#!/bin/sh\nset -e\n" + c.shell + "\nexec " + program + " \"$@\"\n"
	return script, os.WriteFile(script, []byte(text), 0o700) // #nosec G306 -- it is to be run
}

func faultCases() []faultCase {
	return slices.Concat(upstreamCases(), pairCases(), streamCases(), overloadCases(), clientCases())
}

const (
	// comparedAround is how many answers must be compared before a fault, and after it.
	comparedAround = 40
	// answersDuring is how many answers [scene.waitDuringFault] waits for.
	answersDuring = 20
)

// run runs the case with a program of listproxy; "": the one with the race detector.
func (c faultCase) run(t *testing.T, program string) {
	// Before the fault.
	s := newScene(t, cmp.Or(c.stage, quietStage), c.name, program)
	selfCheckInterval := "10s"
	if c.noSelfChecks {
		selfCheckInterval = "0"
	}
	s.args = append([]string{"--self-check-interval", selfCheckInterval}, c.args...)
	s.Bound, s.BreaksOften = cmp.Or(c.bound, load.Bound), c.breaksOften
	if !c.mayForward {
		s.args = append(s.args, "--eager", eagerFlag())
	}
	if c.prepare != nil {
		c.prepare(s)
	}
	for range max(1, c.replicas) {
		s.startListproxy()
	}
	s.follow()
	conclude := s.startLoad()
	if !c.mayForward {
		s.awaitRecovery() // all collections are loaded
	}
	s.awaitCompared("at the beginning")
	requireKnown := func() {}
	if c.wantHistoryKept {
		requireKnown = s.recordKnownRevisions()
	}

	// The fault.
	s.faultBegins()
	mended := c.fault(s)
	if s.faultWindow.To.IsZero() {
		s.faultEnds()
	}

	// After it.
	var recovered time.Duration
	if !c.mayForward {
		s.awaitRecovery()
		recovered = time.Since(mended)
	}
	if c.replacesEtcd {
		s.follow() // recordBeforeReplacement, which such a fault calls, has stopped the followers of the old timeline
	}
	s.awaitCompared("after the fault")
	requireKnown()
	conclude()
	c.judge(s, recovered)
}

// judge reports the mistakes, and adds the case to the report. recovered is the time from the end of the fault until every
// collection was current again.
func (c faultCase) judge(s *scene, recovered time.Duration) {
	c.addMistakes(s, s.Tally.Counts(s.faultWindow))
	if !c.replacesEtcd && !c.mayForward && !c.noSelfChecks {
		s.awaitSelfCheck()
	}
	s.Tally.ReportMistakes(s)
	r := s.Tally.Counts(s.faultWindow)
	if c.noHitsBecause == "" && r.ComparedInWindow == 0 {
		s.Errorf("none of %d answers during the fault came from memory and was right, want one", r.InWindow)
	}
	watches, fleetingWatches := s.watchHits.Load(), s.fleetingHits.Load()
	if c.noHitsBecause == "" && !c.mayForward && (watches == 0 || fleetingWatches == 0 || r.Consistent == 0) {
		s.Errorf("from memory came %d watches, %d of fleeting objects, and %d consistent lists, want some of each",
			watches, fleetingWatches, r.Consistent)
	}
	report.Lock()
	defer report.Unlock()
	report.rows = append(report.rows, fmt.Sprintf("| %s | %d | %d | %d | %d of %d %s | %.0f %% | %d | %d | %.1f s |",
		c.name, r.Compared, r.Recorded, len(r.Mistakes), r.ComparedInWindow, r.InWindow, c.noHitsBecause,
		r.HitPercent(), r.Failed, r.Converged, recovered.Seconds()))
}

// addMistakes adds the mistakes that the counts show if the case does not allow them.
func (c faultCase) addMistakes(s *scene, counts load.Counts) {
	if c.wantAllAnswered && counts.Lost > 0 {
		s.Tally.AddMistake("%d requests were lost: %v", counts.Lost, counts.Failures)
	}
	if c.wantAllAnswered && len(counts.BrokenWatches) > 0 {
		s.Tally.AddMistake("%d watches did not end in order: %v", len(counts.BrokenWatches), errors.Join(counts.BrokenWatches...))
	}
	if c.wantReadersServed && len(counts.Unserved) > 0 {
		s.Tally.AddMistake("memory knows %d lists that were not given, the first is %s", len(counts.Unserved), counts.Unserved[0])
	}
	if c.wantNobodyRejected && counts.Rejected > 0 {
		s.Tally.AddMistake("%d valid requests were refused: %v", counts.Rejected, counts.Failures)
	}
}
