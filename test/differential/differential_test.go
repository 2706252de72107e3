package differential_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/poll"
)

// TestDifferential compares under churn. A client must not be able to tell the two apart.
func TestDifferential(t *testing.T) {
	const floor = 10 // comparisons a second, on the slowest machine
	churn(t, 60)
	report := differential.NewReport()
	comparator := differential.NewComparator(cluster, side(healthy), report, differential.Options{Bound: 10 * time.Second})
	warming, warmed := context.WithTimeout(t.Context(), patience)
	defer warmed()
	if err := comparator.Warm(warming, differential.Representations()...); err != nil {
		t.Error(err)
	}

	ctx, cancel := bounded(t.Context(), report)
	defer cancel()
	begun := time.Now()
	var all sync.WaitGroup
	all.Go(func() { comparator.Run(ctx, *seed, 24) })
	all.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-ticker.C
			r := resource(t, []string{"configmaps", "gadgets", "leases", "widgets"}[i%4])
			namespace := ""
			if r.Namespaced {
				namespace = cluster.Namespaces[i%len(cluster.Namespaces)]
			}
			if err := comparator.Freshness(ctx, r, namespace, fmt.Sprintf("fresh-%d", i)); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	all.Wait()
	finish(t, report)
	for line := range strings.Lines(healthy.Log()) {
		if strings.Contains(line, "level=WARN") {
			t.Log(line)
		}
	}
	if got := report.Share(); got < *share {
		t.Errorf("%.1f%% of what can be answered came from memory, at least %.1f%% should", 100*got, 100**share)
	}
	if got, want := report.Comparisons(), int(floor*time.Since(begun).Seconds()); got < want {
		t.Errorf("%d comparisons, at least %d should be made", got, want)
	}
	if missing := report.Missing(); len(missing) > 0 && report.Comparisons() >= differential.CoverageAfter {
		t.Errorf("after %d comparisons there was none of %d kinds of lists: %+v", report.Comparisons(), len(missing), missing)
	}
}

// bounded returns the context of a comparison of the length that the flags say.
func bounded(parent context.Context, report *differential.Report) (context.Context, context.CancelFunc) {
	if *comparisons == 0 {
		return context.WithTimeout(parent, *duration)
	}
	ctx, cancel := context.WithCancel(parent)
	go func() {
		for report.Comparisons() < *comparisons && poll.Pause(ctx, 50*time.Millisecond) {
		}
		cancel()
	}()
	return ctx, cancel
}
