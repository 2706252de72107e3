package differential

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
)

// coverageAfter is how many comparisons are enough for every class to be among them: what a machine of two
// cores makes in about a minute and a half.
const coverageAfter = 8000

// TestLists compares lists under churn. A client must not be able to tell the two apart: each, by token, by
// certificate and as another, gets what kube-apiserver gives them, and not a byte more.
func TestLists(t *testing.T) {
	churn(t, shared, 60)
	c := newComparator(t)
	// So many are enough on the slowest machine, however long they take there.
	c.lists(enough(t, c, *duration, int(10*duration.Seconds())), *seed, 24)
	finish(t, c.report, *share)
	if n := c.report.counts[expired]; n > 0 { // nobody compacts etcd
		t.Errorf("listproxy gave %d lists of which the API server said that their revision is gone", n)
	}
	if got := c.report.comparisons(); got >= coverageAfter {
		if missing := slices.DeleteFunc(classes(), c.report.has); len(missing) > 0 {
			t.Errorf("after %d comparisons there was none of %d kinds of lists: %+v", got, len(missing), missing)
		}
		if sharded && c.report.counts["shards from memory"] == 0 {
			t.Errorf("after %d comparisons no shard came from memory", got)
		}
		for _, user := range shared.Users {
			if c.report.counts[user.Name] == 0 {
				t.Errorf("after %d comparisons %s has not asked", got, user.Name)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, c.caughtUp(ctx))
}

// TestWatches compares watches under churn. A client must not be able to tell the two apart.
func TestWatches(t *testing.T) {
	churn(t, shared, 60)
	c := newComparator(t)
	c.watches(enough(t, c, *duration, 20), *seed, 48)
	finish(t, c.report, *share)
}

// TestNewestOfQuietResources: the newest state of resources that nobody writes comes from memory, while
// others are written, and is the API server's byte for byte.
func TestNewestOfQuietResources(t *testing.T) {
	quiet := []string{"configmaps", "gadgets"}
	churn(t, shared, 20, quiet...)
	c := newComparator(t)
	rng := rand.New(rand.NewPCG(*seed, 7))
	d := newDeck(cluster.Split(rng), shared.Resources)
	d.cards = slices.DeleteFunc(d.cards, func(c card) bool {
		return c.Semantics != mostRecent || !slices.Contains(quiet, c.Resource.Resource)
	})
	c.run(enough(t, c, 0, 60), rng, 12, func(ctx context.Context, g *generator) { c.deal(ctx, g, d) })
	finish(t, c.report, *share)
}
