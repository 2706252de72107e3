package faults

import (
	"context"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/oracle"
)

// faultCase is one thing that goes wrong.
type faultCase struct {
	name  string
	stage *stage
	// args are added to listproxy's. Replicas of it run before the fault; 1 if 0.
	args     []string
	replicas int
	// before prepares, when nothing runs yet.
	before func(s *scene)
	// fault causes the fault and ends it. It returns when it was over.
	fault func(s *scene) time.Time
	// after looks at what has become of it, when all is back.
	after func(s *scene)
	// shell is what a shell does before it becomes listproxy.
	shell string
	// plain: listproxy is one without the race detector, which takes several times the memory.
	plain bool
	// jumps: listproxy is one whose wall clock can jump.
	jumps bool
	// replaces: etcd's past is another one afterwards.
	replaces bool
	// restarts: another kube-apiserver answers after the fault, which listproxy has to notice if
	// its Lease tells.
	restarts bool
	// mayForward: a collection need not be in memory, so neither answers nor watches need come from
	// there. Those that were given during the fault are compared all the same.
	mayForward bool
	// unserved says why no answer has to come from memory while the fault lasts. If it is "", one
	// must.
	unserved string
	// answersAll: no request may be lost, and watches end in order.
	answersAll bool
}

// all is for every case; without it only those run that everyTime names.
var all = flag.Bool("faults.all", false, "run every case, not only those of make test-all")

// everyTime are the cases of make test-all: those that break most, one of each kind. All of them
// take more than twice as long. make test has the two that are short.
func everyTime() []string {
	if testing.Short() {
		return []string{"apiserver_killed", "connections_cut"}
	}
	return []string{
		"apiserver_killed", "apiserver_paused", "etcd_compacted", "etcd_restored_and_written_past",
		"slow", "refusing", "connections_cut", "upstream_silent", "watches_delayed_unevenly", "watches_delayed_ever_more", "watches_told_410", "watches_garbled",
		"listproxy_killed", "listproxies_rolled", "memory_tight",
	}
}

// TestFaults runs the cases.
func TestFaults(t *testing.T) {
	cases := faultCases()
	for _, name := range everyTime() {
		if !slices.ContainsFunc(cases, func(c faultCase) bool { return c.name == name }) {
			t.Errorf("no case is called %s", name)
		}
	}
	for _, c := range cases {
		if !*all && !slices.Contains(everyTime(), c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			binary := *binary
			if c.jumps {
				var err error
				if binary, err = harness.BuildJumpingProxy(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if c.shell != "" {
				var err error
				if binary, err = within(t.Context(), t.TempDir(), c); err != nil {
					t.Fatal(err)
				}
			}
			plane, leave, err := c.stage.enter(context.WithoutCancel(t.Context()))
			t.Cleanup(leave)
			expect.NoError(t, err)
			c.run(t, plane, binary)
		})
	}
}

// within makes a program that does what a case says and becomes listproxy.
func within(ctx context.Context, dir string, c faultCase) (string, error) {
	build := harness.BuildProxy
	if c.plain {
		build = buildPlain
	}
	listproxy, err := build(ctx)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "within")
	script := "#!/bin/sh\nset -e\n" + c.shell + "\nexec " + listproxy + " \"$@\"\n"
	return program, os.WriteFile(program, []byte(script), 0o700) // #nosec G306 -- it is to be run
}

// buildPlain compiles the command as it is shipped, but for its version, unless one is given.
func buildPlain(ctx context.Context) (string, error) {
	if *binary != "" {
		return *binary, nil
	}
	return harness.BuildPlainProxy(ctx)
}

// faultCases are all there are.
func faultCases() []faultCase {
	return slices.Concat(upstreamCases(), streamCases(), overloadCases(), clientCases(), clockCases())
}

const (
	// So many answers are compared before a fault, and after it.
	calmAround = 40
	// So many are waited for while it lasts, for a while.
	calmDuring = 20
)

// run runs the case with a listproxy of that binary; of the usual one, if it is "".
func (c faultCase) run(t *testing.T, plane *controlplane.ControlPlane, binary string) {
	s := newScene(t, plane, c.name, binary)
	if c.before != nil {
		c.before(s)
	}
	defer s.proxies.Stop(s)
	s.args = slices.Clone(c.args)
	if !c.mayForward {
		s.args = append(s.args, "--eager", eager())
	}
	for range max(1, c.replicas) {
		s.start()
	}
	s.mark("started")
	s.follow()
	s.mark("followed")

	quiet, end := s.load()
	defer end()
	if !c.mayForward {
		s.recover() // all collections are loaded
	}
	s.mark("loaded")
	s.calm("at the beginning")
	s.mark("calm")
	if c.restarts {
		s.holders = s.leases()
	}
	s.breaks()
	over := c.fault(s)
	if s.broken.To.IsZero() {
		s.mends()
	}
	s.mark("the fault is over")
	var recovered *time.Time
	if !c.mayForward {
		s.recover()
		now := time.Now()
		recovered = &now
	}
	s.mark("back")
	if c.replaces {
		s.follow()
	}
	s.calm("after the fault")
	s.mark("calm again")
	if c.after != nil {
		c.after(s)
	}
	quiet()
	s.settled()
	s.mark("followers are there")
	if err := s.Oracle.Drain(t.Context(), patience); err != nil {
		t.Error(err)
	}
	c.judge(s, over, since(over, recovered))
}

// judge says what was seen, and what of it must not be.
func (c faultCase) judge(s *scene, over time.Time, recovered *time.Duration) {
	var changed *time.Time
	for _, relapse := range s.Oracle.Relapses() {
		s.Tally.Wrong("%s", relapse)
	}
	if lost, why := s.Tally.Lost(); c.answersAll && lost > 0 {
		s.Tally.Wrong("%d requests were lost: %v", lost, why)
	}
	if broken := s.Tally.BrokenOff(); c.answersAll && len(broken) > 0 {
		s.Tally.Wrong("%d watches did not end in order: %v", len(broken), errors.Join(broken...))
	}
	if c.restarts {
		changed = s.firstTold(serversChanged, s.gone)
		switch taken := maps.Equal(s.holders, s.leases()); {
		case taken:
			s.Log("kube-apiserver has taken over the Lease of the one before: it could not delete it when it started")
		case changed == nil:
			s.Tally.Wrong("listproxy does not say that it noticed another kube-apiserver")
		}
	}
	r := report{name: c.name, recovered: recovered, unserved: c.unserved, noticed: since(over, changed)}
	if c.replaces {
		r.noticed = since(s.renewed, s.Oracle.LastPast())
		if last := s.Oracle.LastNewestPast().Sub(s.renewed); last > load.Bound+oracle.Tolerance {
			s.Tally.Wrong("a state of the lost past was given as the newest %v after etcd was replaced", last)
		}
		if last := s.Oracle.LastRecentPast().Sub(s.renewed); last > 0 {
			s.Tally.Wrong("a state of the lost past was given as one with all writes %v after etcd was replaced", last)
		}
	}
	if !c.replaces { // revisions of the lost past may be higher than any new one
		r.fresh = since(over, s.Tally.FirstNews(over, s.Ledger.BeforeOfAll(over)))
	}
	r.Counts = s.Tally.Counts(s.broken)
	s.mark("all is compared")
	s.Logf("%s\n%s", strings.Join(s.phases, ", "), table([]report{r}))
	s.Tally.Judge(s)
	if c.unserved == "" && r.DuringRight == 0 {
		s.Errorf("of %d answers while the fault lasted none came from memory, and was right", r.During)
	}
	if c.unserved == "" && !c.mayForward && s.watchHits() == 0 {
		s.Error("no watch came from memory")
	}
	reports.Lock()
	defer reports.Unlock()
	reports.all = append(reports.all, r)
}
