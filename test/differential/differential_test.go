package differential_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestDifferential compares under churn. A client must not be able to tell the two apart.
func TestDifferential(t *testing.T) {
	shared.ChangeUntilEnd(t, 60)
	report := differential.NewReport()
	comparator := differential.NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), report, differential.Options{Bound: differential.HealthyBound, Consistent: true})
	warm(t, comparator)
	// So many are enough on the slowest machine, however long they take there.
	least := int(10 * shared.Duration.Seconds())
	enough := func() bool { return report.Comparisons() >= least }

	ctx, cancel := bounded(t.Context(), report, enough)
	defer cancel()
	comparator.Run(ctx, *shared.Seed, 24)
	finish(t, report)
	for line := range strings.Lines(shared.Healthy.Log()) {
		if strings.Contains(line, "level=WARN") {
			t.Log(line)
		}
	}
	unexpired(t, report)
	enoughFromMemory(t, report)
	if *comparisons == 0 && !enough() {
		t.Errorf("%d comparisons, at least %d should be made", report.Comparisons(), least)
	}
	if missing := report.Missing(); len(missing) > 0 && report.Comparisons() >= differential.CoverageAfter {
		t.Errorf("after %d comparisons there was none of %d kinds of lists: %+v", report.Comparisons(), len(missing), missing)
	}
	caughtUp(t, comparator)
}

// TestNewestOfQuietResources: the newest state of resources that nobody writes comes from memory, while
// others are written, and is the API server's byte for byte.
func TestNewestOfQuietResources(t *testing.T) {
	quiet := []string{"configmaps", "gadgets"}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { shared.Churn(ctx, *shared.Seed, 2, 20, quiet...) })
	defer writing.Wait()
	defer stop()
	report := differential.NewReport()
	comparator := differential.NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), report, differential.Options{
		Bound: patience, Resources: quiet, Consistent: true,
		Only: func(c differential.Class) bool { return c.Semantics == differential.MostRecent },
	})
	warm(t, comparator)
	comparing, enough := context.WithCancel(ctx)
	defer enough()
	go func() {
		defer enough()
		for report.Comparisons() < 60 && poll.Pause(comparing, 50*time.Millisecond) {
		}
	}()
	comparator.Run(comparing, *shared.Seed, 12)
	finish(t, report)
	enoughFromMemory(t, report)
}

// enoughFromMemory demands that as much comes from memory as the flag says.
func enoughFromMemory(t *testing.T, report *differential.Report) {
	t.Helper()
	if got := report.Share(); got < *shared.Share {
		t.Errorf("%.1f%% of what can be answered came from memory, at least %.1f%% should", 100*got, 100**shared.Share)
	}
}

// unexpired demands that nothing could not be compared: as long as nobody compacts etcd, the API
// server has all that may be asked for.
func unexpired(t *testing.T, report *differential.Report) {
	t.Helper()
	if n := report.Expired(); n > 0 {
		t.Errorf("listproxy gave %d lists of which the API server said that their revision is gone", n)
	}
}

// bounded returns the context of a comparison of the length that the flags say. One that is to take
// a time takes longer if there has not been enough by then.
func bounded(parent context.Context, report *differential.Report, enough func() bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	if *comparisons > 0 {
		go func() {
			defer cancel()
			for report.Comparisons() < *comparisons && poll.Pause(ctx, 50*time.Millisecond) {
			}
		}()
		return ctx, cancel
	}
	go func() {
		defer cancel()
		poll.Pause(ctx, *shared.Duration)
		for begun := time.Now(); !enough() && time.Since(begun) < patience && poll.Pause(ctx, 50*time.Millisecond); {
		}
	}()
	return ctx, cancel
}

// warm waits until listproxy keeps all that it may keep.
func warm(t *testing.T, c *differential.Comparator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, c.Warm(ctx, differential.Representations()...))
}

// caughtUp waits until what was written last comes from memory.
func caughtUp(t *testing.T, c *differential.Comparator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, c.CaughtUp(ctx))
}

// TestFirstState: what the other tests compare was loaded by streaming lists where the API server
// has them, and page by page where it has not.
func TestFirstState(t *testing.T) {
	cached := 0
	for _, r := range shared.Resources {
		if r.Cached {
			cached++
		}
	}
	want := cached
	if *shared.WatchList {
		want = 0
	}
	// Loads after a restart of the API server say it again.
	if got := strings.Count(shared.Healthy.Log(), "loaded page by page"); got < want || want == 0 && got > 0 {
		t.Errorf("%d of %d collections were loaded page by page, want %d", got, cached, want)
	}
}
