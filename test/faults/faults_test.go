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

// faultFunc causes a fault and ends it. It returns the time from which recovery is measured, usually the end of the fault.
type faultFunc func(*scene) (endedAt time.Time)

// faultCase is a fault, and what may happen while it lasts.
type faultCase struct {
	name  string
	suite suite
	// inSoak makes TestSoak cause the fault, too. Such a fault must not replace etcd. It must not replace listproxy either,
	// since TestSoak measures the memory of one process.
	inSoak bool
	// stage is the control plane on which the case runs; nil means quietStage.
	stage *stage

	// How listproxy runs.

	args     []string // further arguments
	replicas int      // the number of listproxies before the fault; 0 means one
	// shell has commands that a shell runs before it becomes listproxy.
	shell string
	// withoutRace runs a listproxy without the race detector, which takes several times the memory.
	withoutRace bool
	// noSelfChecks turns off listproxy's self-checks, which compare memory with kube-apiserver. If it is false, a self-check
	// must agree in the end, unless etcd was replaced.
	noSelfChecks bool
	bound        time.Duration // --staleness-bound; 0 means [load.Bound]

	// What is done.

	// prepare is called before listproxy starts. It may be nil.
	prepare func(s *scene)
	// fault is what happens.
	fault faultFunc

	// What may happen, and what must.

	breaksOften bool // see [load.Load.BreaksOften]
	// replacesEtcd means that the fault replaces etcd. The new etcd begins a new timeline: it gives revisions of the old one to
	// other states, unless its revisions were raised (etcd_restored_and_bumped).
	replacesEtcd bool
	// mayForward allows listproxy to forward every request. Answers from memory during the fault are compared all the same.
	mayForward bool
	// noHitsBecause says why no answer has to come from memory during the fault. If it is "", at least one has to.
	noHitsBecause string
	// wantHistoryKept demands that listproxy still answers lists at revisions from before the fault
	// ([scene.recordKnownRevisions]).
	wantHistoryKept bool
	// wantReadersServed demands answers to lists of any version and to next pages in an outage.
	wantReadersServed bool
	// wantAllAnswered demands an answer to every request, and an orderly end of watches.
	wantAllAnswered bool
	// wantNobodyRejected demands that no answer is 400, 401 or 410. The case must not compact etcd or change rights.
	wantNobodyRejected bool
}

// suite is the smallest make target that runs a case. The targets are in order: each runs all cases of those after it, too. A
// case of makeTestAll, for example, runs in make test-all and in make faults, but not in make test.
type suite int

const (
	makeFaults  suite = iota // make faults: every case
	makeTestAll              // make test-all: one case of each kind, the one that breaks most
	makeTest                 // make test: two short cases
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
		if c.suite < chosen { // the case is only in larger suites
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

// listproxyProgram returns the path of the listproxy to test: that of -faults.listproxy, or else the one that build makes.
func listproxyProgram(build func() (string, error)) (string, error) {
	if *binary != "" {
		return *binary, nil
	}
	return build()
}

// makeProgram returns the path of the program that the case runs as listproxy. A case with shell commands gets a script, which
// makeProgram writes into dir. The script runs the commands, and then becomes listproxy.
func (c faultCase) makeProgram(dir string) (string, error) {
	build := harness.BuildProxy
	if c.withoutRace {
		build = harness.BuildPlainProxy
	}
	program, err := listproxyProgram(build)
	if err != nil || c.shell == "" {
		return program, err
	}
	script := filepath.Join(dir, "listproxy")
	text := "#!/bin/sh\nset -e\n" + c.shell + "\nexec " + program + " \"$@\"\n"
	return script, os.WriteFile(script, []byte(text), 0o700) // #nosec G306 -- it is to be run
}

// faultCases returns all cases.
func faultCases() []faultCase {
	return slices.Concat(upstreamCases(), pairCases(), streamCases(), overloadCases(), clientCases())
}

// run runs the case: it starts listproxy and the load, causes the fault, waits for the recovery, and judges what was seen.
func (c faultCase) run(t *testing.T) {
	// Step 1: listproxy, followers and load run, and answers from memory are right.
	program, err := c.makeProgram(t.TempDir())
	expect.NoError(t, err)
	s := newScene(t, cmp.Or(c.stage, quietStage), c.name, program)
	selfCheckInterval := "10s"
	if c.noSelfChecks {
		selfCheckInterval = "0"
	}
	s.args = append([]string{"--self-check-interval", selfCheckInterval}, c.args...)
	s.Bound = cmp.Or(c.bound, load.Bound)
	s.BreaksOften = c.breaksOften
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
	requireKnownRevisions := func() {} // requires nothing
	if c.wantHistoryKept {
		requireKnownRevisions = s.recordKnownRevisions()
	}

	// Step 2: the fault happens and is ended.
	s.faultBegins()
	mended := c.fault(s)
	if s.faultWindow.To.IsZero() { // the fault has not called faultEnds itself
		s.faultEnds()
	}

	// Step 3: answers come from memory again, and are right.
	var recovered time.Duration
	if !c.mayForward {
		s.awaitRecovery()
		recovered = time.Since(mended)
	}
	if c.replacesEtcd {
		s.follow() // recordBeforeReplacement, which such a fault calls, has stopped the followers of the old timeline
	}
	s.awaitCompared("after the fault")
	requireKnownRevisions()
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
	counts := s.Tally.Counts(s.faultWindow) // with the mistakes that were added
	if c.noHitsBecause == "" {
		c.requireHits(s, counts)
	}
	report.Lock()
	defer report.Unlock()
	report.rows = append(report.rows, fmt.Sprintf("| %s | %d | %d | %d | %d of %d %s | %.0f %% | %d | %d | %.1f s |",
		c.name, counts.Compared, counts.Recorded, len(counts.Mistakes), counts.ComparedInWindow, counts.InWindow, c.noHitsBecause,
		counts.HitPercent(), counts.Failed, counts.Converged, recovered.Seconds()))
}

// requireHits requires a right answer from memory during the fault and, unless all may be forwarded, watches and consistent
// lists from memory at any time.
func (c faultCase) requireHits(s *scene, counts load.Counts) {
	if counts.ComparedInWindow == 0 {
		s.Errorf("none of %d answers during the fault came from memory and was right, want one", counts.InWindow)
	}
	if c.mayForward {
		return
	}
	for what, hits := range map[string]int64{
		"watch": s.watchHits.Load(), "watch of fleeting objects": s.fleetingHits.Load(), "consistent list": int64(counts.Consistent),
	} {
		if hits == 0 {
			s.Errorf("no %s came from memory, want some", what)
		}
	}
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
