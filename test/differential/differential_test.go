package differential

import (
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// coverageAfter is how many comparisons are enough for every class to be among them: what a machine of two
// cores makes in about a minute and a half.
const coverageAfter = 8000

// TestLists compares lists under churn. A client must not be able to tell the two apart: each, by token, by
// certificate and as another, gets what kube-apiserver gives them, and not a byte more.
func TestLists(t *testing.T) {
	churn(t, 60)
	c := newComparator(t)
	// So many are enough on the slowest machine, however long they take there.
	least, during := int(10*duration.Seconds()), *duration
	if *comparisons > 0 {
		least, during = *comparisons, 0
	}
	ctx, cancel := lasting(t, during, func() bool { return c.report.comparisons("") >= least })
	defer cancel()
	c.lists(ctx, *seed, 24)
	finish(t, c.report, *share)
	for line := range strings.Lines(proxy.Log()) {
		if strings.Contains(line, "level=WARN") {
			t.Log(line)
		}
	}
	unexpired(t, c.report)
	if got := c.report.comparisons(""); got < least {
		t.Errorf("%d comparisons, at least %d should be made", got, least)
	}
	missing := slices.DeleteFunc(classes(), c.report.has)
	if got := c.report.comparisons(""); len(missing) > 0 && got >= coverageAfter {
		t.Errorf("after %d comparisons there was none of %d kinds of lists: %+v", got, len(missing), missing)
	}
	for _, user := range shared.Users() {
		if got := c.report.comparisons(""); got >= coverageAfter && c.report.comparisons(user.Name) == 0 {
			t.Errorf("after %d comparisons %s has not asked", got, user.Name)
		}
	}
	caughtUp(t, c)
}

// TestWatches compares watches under churn. A client must not be able to tell the two apart.
func TestWatches(t *testing.T) {
	churn(t, 60)
	c := newComparator(t)
	ctx, cancel := lasting(t, *duration, func() bool { return c.report.comparisons("") >= 20 })
	defer cancel()
	c.watches(ctx, *seed, 48)
	finish(t, c.report, *share)
}

// TestNewestOfQuietResources: the newest state of resources that nobody writes comes from memory, while
// others are written, and is the API server's byte for byte.
func TestNewestOfQuietResources(t *testing.T) {
	quiet := []string{"configmaps", "gadgets"}
	churn(t, 20, quiet...)
	c := newComparator(t)
	c.only = func(c class, r cluster.Resource) bool {
		return c.Semantics == mostRecent && slices.Contains(quiet, r.Resource)
	}
	ctx, cancel := lasting(t, 0, func() bool { return c.report.comparisons("") >= 60 })
	defer cancel()
	c.lists(ctx, *seed, 12)
	finish(t, c.report, *share)
}

// unexpired demands that nothing could not be compared: as long as nobody compacts etcd, the API
// server has all that may be asked for.
func unexpired(t *testing.T, r *report) {
	t.Helper()
	if n := r.counts[expired]; n > 0 {
		t.Errorf("listproxy gave %d lists of which the API server said that their revision is gone", n)
	}
}
