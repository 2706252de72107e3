package differential_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestFaults kills and restarts kube-apiserver and compacts etcd in the middle of a comparison:
// answers may be missing, never wrong.
func TestFaults(t *testing.T) {
	harness.Long(t)
	shared.ChangeUntilEnd(t, 60)
	report := differential.NewReport()
	comparator := differential.NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), report, differential.Options{Bound: differential.HealthyBound, Faults: true})
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	done := make(chan struct{})
	go func() {
		defer close(done)
		comparator.Run(ctx, *shared.Seed, 4)
	}()
	defer func() {
		cancel()
		<-done
	}()

	// more waits until the comparison has gone on, with answers from memory.
	more := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		comparisons, fromMemory := report.Comparisons(), report.FromMemory()
		for report.Comparisons() < comparisons+150 || report.FromMemory() < fromMemory+50 {
			if !poll.Pause(ctx, 20*time.Millisecond) {
				t.Fatalf("too few comparisons, or none from memory, %s: %v", what, report)
			}
		}
	}
	try := func(err error) {
		t.Helper()
		expect.NoError(t, err)
	}
	restart := func() {
		t.Helper()
		try(shared.Plane.KillAPIServer())
		try(shared.Plane.StartAPIServer(ctx))
		recovered(ctx, t, comparator)
	}

	more("at the beginning")
	recorded, err := comparator.Record(ctx)
	try(err)
	restart()
	more("after a restart")
	if n := comparator.Replay(ctx, recorded); n != len(recorded) {
		t.Errorf("%d of %d recorded lists can be had after a restart", n, len(recorded))
	}
	try(shared.Plane.CompactEtcd(ctx))
	more("after a compaction")
	comparator.Replay(ctx, recorded)
	// Now the API server has no old states in its cache, either.
	restart()
	more("after a compaction and a restart")
	t.Logf("of %d recorded lists of a compacted revision, %d are still answered", len(recorded), comparator.Replay(ctx, recorded))

	cancel()
	<-done
	// What was compacted is nobody's to ask for any more.
	shared.Ledger.Begin()
	finish(t, report)
}

// recovered waits until all resources are answered from memory again.
func recovered(ctx context.Context, t *testing.T, c *differential.Comparator) {
	t.Helper()
	begun := time.Now()
	for _, r := range shared.Resources {
		last := ""
		for r.Cached && last != "listproxy; hit; detail=any" {
			if time.Since(begun) > patience {
				t.Errorf("%v after a restart of the API server, %s is not answered from memory: %s", patience, r.Resource, last)
				return
			}
			if answer, err := c.ProxyAnswer(ctx, r, "", shared.Users()[0], url.Values{"resourceVersion": {"0"}}); err == nil {
				last = answer.Header.Get("Cache-Status")
			}
			if !poll.Pause(ctx, 20*time.Millisecond) {
				return
			}
		}
	}
	t.Logf("all answered from memory again %v after the API server was ready", time.Since(begun).Round(time.Millisecond))
}
