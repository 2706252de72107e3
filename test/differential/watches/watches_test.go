package watches

import (
	"context"
	"testing"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/expect"
)

// TestWatches compares watches under churn. A client must not be able to tell the two apart.
func TestWatches(t *testing.T) {
	shared.ChangeUntilEnd(t, 60, shared.Turnover) // and makes and deletes many objects
	report := differential.NewReport()
	c := NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), report, Options{
		WatchList: *shared.WatchList, Begun: shared.Begun, Bound: differential.HealthyBound, Patience: patience,
	})
	warm(t)
	ctx, cancel := context.WithTimeout(t.Context(), *shared.Duration)
	defer cancel()
	c.Run(ctx, *shared.Seed, 48)
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

// warm waits until listproxy keeps all that it may keep.
func warm(t *testing.T) {
	t.Helper()
	lists := differential.NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), differential.NewReport(), differential.Options{Bound: differential.HealthyBound, Consistent: true})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, lists.Warm(ctx, differential.Representations()...))
}
