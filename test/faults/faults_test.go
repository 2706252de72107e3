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

// faultCase is one thing that goes wrong.
type faultCase struct {
	name  string
	runs  runs   // when it runs
	soaks bool   // TestSoak has it, too: it leaves the past as it is, and listproxy alive, which is measured
	stage *stage // nil: quiet
	// args are added to listproxy's. Replicas of it run before the fault; 1 if 0.
	args     []string
	replicas int
	// before prepares, when nothing runs yet.
	before func(s *scene)
	// fault causes the fault and ends it. It returns when it was over.
	fault func(s *scene) time.Time
	// keepsHistory: listproxy must know all revisions that it knew before.
	keepsHistory bool
	// shell is what a shell does before it becomes listproxy.
	shell string
	// plain: listproxy is one without the race detector, which takes several times the memory.
	plain bool
	// replaces: etcd's past is another one afterwards.
	replaces bool
	// mayForward: a collection need not be in memory, so neither answers nor watches need come from
	// there. Those that were given during the fault are compared all the same.
	mayForward bool
	// unserved says why no answer has to come from memory while the fault lasts. If it is "", one
	// must.
	unserved string
	// servesReaders: while nobody answers upstream, lists of any version and next pages are given.
	servesReaders bool
	// bound is the --staleness-bound; 0: [load.Bound].
	bound time.Duration
	// breaksOften is [load.Load.BreaksOften].
	breaksOften bool
	// answersAll: no request may be lost, and watches end in order.
	answersAll bool
	// refusesNobody: nothing is compacted, and nobody's rights change. So no token may be refused,
	// neither a caller's nor that of a page, and no revision.
	refusesNobody bool
}

// runs says which of them make test-all has, that break most, one of each kind, and which two short ones
// make test has.
type runs int

const (
	withAll runs = iota
	inFull
	always
)

var all = flag.Bool("faults.all", false, "run every case, not only those of make test-all")

// TestFaults runs the cases.
func TestFaults(t *testing.T) {
	least := inFull
	switch {
	case *all:
		least = withAll
	case testing.Short():
		least = always
	}
	for _, c := range faultCases() {
		if c.runs < least {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			binary := *binary
			if c.shell != "" {
				var err error
				binary, err = within(t.TempDir(), c)
				expect.NoError(t, err)
			}
			c.run(t, binary)
		})
	}
}

// within makes a program that does what a case says and becomes listproxy.
func within(dir string, c faultCase) (string, error) {
	build := harness.BuildProxy
	if c.plain {
		build = buildPlain
	}
	listproxy, err := build()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "within")
	script := "#!/bin/sh\nset -e\n" + c.shell + "\nexec " + listproxy + " \"$@\"\n"
	return program, os.WriteFile(program, []byte(script), 0o700) // #nosec G306 -- it is to be run
}

// buildPlain compiles the command as it is shipped, but for its version, unless one is given.
func buildPlain() (string, error) {
	if *binary != "" {
		return *binary, nil
	}
	return harness.BuildPlainProxy()
}

// faultCases are all there are.
func faultCases() []faultCase {
	return slices.Concat(upstreamCases(), pairCases(), streamCases(), overloadCases(), clientCases())
}

const (
	// So many answers are compared before a fault, and after it.
	calmAround = 40
	// So many are waited for while it lasts, for a while.
	calmDuring = 20
)

// run runs the case with a listproxy of that binary; of the usual one, if it is "".
func (c faultCase) run(t *testing.T, binary string) {
	s := newScene(t, cmp.Or(c.stage, quiet), c.name, binary)
	s.args = append([]string{"--self-check-interval", "10s"}, c.args...)
	s.Bound, s.BreaksOften = cmp.Or(c.bound, load.Bound), c.breaksOften
	if !c.mayForward {
		s.args = append(s.args, "--eager", eager())
	}
	if c.before != nil {
		c.before(s)
	}
	for range max(1, c.replicas) {
		s.start()
	}
	s.follow()
	conclude := s.load()
	if !c.mayForward {
		s.recover() // all collections are loaded
	}
	s.calm("at the beginning")
	kept := func() {}
	if c.keepsHistory {
		kept = s.remember()
	}
	s.faultBegins()
	over := c.fault(s)
	if s.broken.To.IsZero() {
		s.faultEnds()
	}
	var recovered time.Duration
	if !c.mayForward {
		s.recover()
		recovered = time.Since(over)
	}
	if c.replaces {
		s.follow()
	}
	s.calm("after the fault")
	kept()
	conclude()
	c.judge(s, recovered)
}

// judge says what was seen, and what of it must not be. recovered is how long after the end of the fault all
// that is kept was new.
func (c faultCase) judge(s *scene, recovered time.Duration) {
	seen := s.Tally.Counts(s.broken)
	if c.answersAll && seen.Lost > 0 {
		s.Tally.Wrong("%d requests were lost: %v", seen.Lost, seen.Why)
	}
	if c.servesReaders && len(seen.Unserved) > 0 {
		s.Tally.Wrong("%d lists were not given that memory knows, first %s", len(seen.Unserved), seen.Unserved[0])
	}
	if c.answersAll && len(seen.BrokenOff) > 0 {
		s.Tally.Wrong("%d watches did not end in order: %v", len(seen.BrokenOff), errors.Join(seen.BrokenOff...))
	}
	if c.refusesNobody && seen.NotRight > 0 {
		s.Tally.Wrong("%d requests were refused that are right: %v", seen.NotRight, seen.Why)
	}
	if !c.replaces && !c.mayForward && !slices.Contains(c.args, "--self-check-interval") {
		s.selfChecked()
	}
	r := s.Tally.Counts(s.broken)
	s.Tally.Judge(s)
	if c.unserved == "" && r.DuringRight == 0 {
		s.Errorf("of %d answers while the fault lasted none came from memory, and was right", r.During)
	}
	if hits := s.watchHits.Load(); c.unserved == "" && !c.mayForward && (hits == 0 || s.fleetingHits.Load() == 0 || r.Recent == 0) {
		s.Errorf("from memory came %d watches, %d of fleeting objects, and %d lists of the newest state", hits, s.fleetingHits.Load(), r.Recent)
	}
	report.Lock()
	defer report.Unlock()
	report.rows = append(report.rows, fmt.Sprintf("| %s | %d | %d | %d | %d of %d %s | %.0f %% | %d | %d | %.1f s |", c.name, r.Compared, r.Recorded,
		len(r.Mistakes), r.DuringRight, r.During, c.unserved, r.Share(), r.Refused, r.Followed, recovered.Seconds()))
}
