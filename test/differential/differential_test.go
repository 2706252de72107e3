package differential

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
)

const (
	// writesPerSecond is how often objects change while lists and watches are compared.
	writesPerSecond = 60
	// minWatches is the least number of watches that are compared.
	minWatches = 20
	// coverageAfter is the number of comparisons after which every class of lists must have been compared. A machine with two
	// cores makes as many in about a minute and a half. A shorter run does not check the classes.
	coverageAfter = 8000
)

// TestFirstState: listproxy loads collections by streaming lists if kube-apiserver has these, and page by page if not.
func TestFirstState(t *testing.T) {
	cached := 0
	for _, r := range shared.Resources {
		if r.Cached {
			cached++
		}
	}
	pageByPage := strings.Count(sharedProxy.Log(), "loaded page by page")
	if *watchList && pageByPage > 0 {
		t.Errorf("%d collections were loaded page by page, want none", pageByPage)
	}
	if !*watchList && pageByPage < cached { // a collection that is loaded again logs it again
		t.Errorf("%d collections were loaded page by page, want all %d", pageByPage, cached)
	}
}

// TestLists: while objects change, listproxy answers lists as kube-apiserver does, byte for byte, to users with tokens, with
// certificates, and who impersonate others.
func TestLists(t *testing.T) {
	churn(t, shared, writesPerSecond)
	c := newComparator(t)
	const askers, minPerSecond = 24, 10 // on the slowest machine
	minLists := int(minPerSecond * duration.Seconds())
	c.compareLists(untilEnough(t, c, *duration, minLists), *seed, askers)
	finish(t, c.report, *share)
	if c.report.lost > 0 { // etcd is not compacted during the test
		t.Errorf("listproxy answered %d lists of revisions that kube-apiserver no longer has", c.report.lost)
	}
	if c.report.comparisons() >= coverageAfter {
		checkCoverage(t, c.report)
	}
	// listproxy has not fallen behind for good.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, c.awaitCaughtUp(ctx))
}

// checkCoverage requires that lists of each class and lists by each user have been compared, and at least one shard from memory
// where kube-apiserver has shards.
func checkCoverage(t *testing.T, r *report) {
	t.Helper()
	if missing := slices.DeleteFunc(classes(), r.hasList); len(missing) > 0 {
		t.Errorf("after %d comparisons, %d classes of lists were not compared: %+v", r.comparisons(), len(missing), missing)
	}
	if hasShards && r.shardHits == 0 {
		t.Errorf("after %d comparisons, no shard came from memory", r.comparisons())
	}
	for _, user := range shared.Users {
		if r.users[user.Name] == 0 {
			t.Errorf("after %d comparisons, none was by %s", r.comparisons(), user.Name)
		}
	}
}

// TestWatches: while objects change, listproxy's watches have the events and bookmarks of kube-apiserver's.
func TestWatches(t *testing.T) {
	churn(t, shared, writesPerSecond)
	c := newComparator(t)
	const watchers = 48
	c.compareWatches(untilEnough(t, c, *duration, minWatches), *seed, watchers)
	finish(t, c.report, *share)
}

// TestNewestOfQuietResources: while other resources are written, consistent lists of resources that nobody writes come from
// memory (-differential.share of them), with kube-apiserver's bytes.
func TestNewestOfQuietResources(t *testing.T) {
	quiet := []string{"configmaps", "gadgets"}
	const writesPerSecond, askers = 20, 12
	const minDuration, minLists = 0, 60
	churn(t, shared, writesPerSecond, quiet...)
	c := newComparator(t)
	rng := rand.New(rand.NewPCG(*seed, quietStream))
	quietLists := newDeck(cluster.Split(rng), shared.Resources)
	quietLists.cards = slices.DeleteFunc(quietLists.cards, func(c card) bool {
		return c.Semantics != consistent || !slices.Contains(quiet, c.Resource.Resource)
	})
	c.runWorkers(untilEnough(t, c, minDuration, minLists), rng, askers, func(ctx context.Context, g *generator) {
		c.compareCard(ctx, g, quietLists)
	})
	finish(t, c.report, *share)
}
