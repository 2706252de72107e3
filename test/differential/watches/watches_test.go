package watches

import (
	"context"
	"sync"
	"testing"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/expect"
)

// TestWatches compares watches under churn. A client must not be able to tell the two apart.
func TestWatches(t *testing.T) {
	churn(t, 60)
	report := NewReport()
	c := comparator(differential.SideOf(shared.Healthy), report, Options{})
	warm(t)
	ctx, cancel := context.WithTimeout(t.Context(), *shared.Duration)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { c.Run(ctx, *shared.Seed, 40) })
	all.Go(func() { c.Follow(ctx, *shared.Seed, 16) })
	all.Wait()
	t.Log(report)
	if len(report.Kinds()) > 0 {
		t.Error("there are differences")
	}
	if report.Comparisons() < 20 {
		t.Errorf("only %d watches were compared", report.Comparisons())
	}
	if got := report.Share(); got < *shared.Share {
		t.Errorf("%.1f%% of the watches that can be answered came from memory, at least %.1f%% should", 100*got, 100**shared.Share)
	}
}

// comparator compares with shared.
func comparator(proxy *differential.Side, report *Report, o Options) *Comparator {
	o.WatchList, o.Begun = *shared.WatchList, shared.Begun
	if o.Bound == 0 {
		o.Bound = differential.HealthyBound
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	return NewComparator(shared.Cluster, proxy, report, o)
}

// warm waits until listproxy keeps all that it may keep.
func warm(t *testing.T) {
	t.Helper()
	lists := differential.NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), differential.NewReport(), differential.Options{Bound: differential.HealthyBound, Consistent: true})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, lists.Warm(ctx, differential.Representations()...))
}
